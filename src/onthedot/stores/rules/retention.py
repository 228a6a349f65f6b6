"""Retention: what a purge drops, in this order."""

from __future__ import annotations

from onthedot.stores.rules import series as series_rules
from onthedot.stores.rules.task_tables import TaskTables


def purge(tables: TaskTables, limit: int, most: int) -> int:
    """Drop at most `limit` ended records; return how many. Then whatever else is over."""
    dropped = tables.drop_expired(limit)
    dropped += tables.drop_oldest(limit - dropped, most)
    tables.drop_recent()
    tables.drop_expired_keys()
    tables.drop_expired_results(limit)
    tables.drop_signals(limit)
    tables.drop_counters(limit)
    series_rules.purge(tables.series, tables.now, limit)
    tables.limits.sweep(tables.now)
    return dropped
