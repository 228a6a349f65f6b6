"""Mutants: planted defects, each of which the test that is meant for it must detect. See `__main__.py`."""
