"""Rules that create tasks over time."""
