"""Schedules end to end, on a memory store and on a file, with a clock that the tests drive."""
