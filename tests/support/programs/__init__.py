"""Tasks that pool children import."""
