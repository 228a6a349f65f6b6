"""One module per subject; a handler reads one request and calls one operation."""
