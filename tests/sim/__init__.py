"""A deterministic simulation: the real engine on a virtual event loop, with faults that a seed decides."""
