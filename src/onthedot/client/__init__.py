"""One event loop's access to the store."""
