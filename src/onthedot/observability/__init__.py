"""Events of the engine and the log lines that are written from them."""
