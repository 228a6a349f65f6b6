"""The statements of this store, by name."""

from __future__ import annotations

from pathlib import Path

from onthedot.stores.sql_files import load_queries

_FILES = (
    "queries.sql", "counter_queries.sql", "event_queries.sql", "series_queries.sql", "read_queries.sql",
    "list_queries.sql",
)  # fmt: skip

SQL = load_queries(*(Path(__file__).with_name(name) for name in _FILES))
