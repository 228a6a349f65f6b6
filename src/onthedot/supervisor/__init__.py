"""The parent process of `onthedot worker`, and the entry point of its children."""
