"""Batches: a count or list of items that tasks produce in parts, de-duplicated and topped up."""
