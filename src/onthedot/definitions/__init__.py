"""Sources as code defines them."""
