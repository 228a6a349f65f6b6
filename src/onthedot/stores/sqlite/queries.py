"""The statements of this store, by name."""

from __future__ import annotations

from pathlib import Path

from onthedot.stores.sql_files import load_queries

SQL = load_queries(Path(__file__).with_name("queries.sql"))
