"""Faults of the bus, of relays and of agents."""
