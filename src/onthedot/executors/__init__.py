"""Executors: where a task's function runs."""
