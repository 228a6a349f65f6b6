"""Retention: what a purge drops, in this order."""

from __future__ import annotations

from onthedot.stores.rules.task_tables import TaskTables


def purge(tables: TaskTables, limit: int, most: int) -> int:
    """Drop at most `limit` ended records; return how many. Then what else is over: keys, results, signals, counters."""
    dropped = tables.drop_expired(limit)
    dropped += tables.drop_oldest(limit - dropped, most)
    tables.drop_recent()
    tables.drop_expired_keys()
    tables.drop_expired_results(limit)
    tables.drop_signals(limit)
    tables.drop_counters(limit)
    tables.limits.sweep(tables.now)
    return dropped
