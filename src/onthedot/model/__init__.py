"""The values around a task."""
