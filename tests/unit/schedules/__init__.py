"""Schedules end to end, on every kind of store, by a clock that the tests turn."""
