"""Wires store, client, engine and executors together."""
