"""The statements of this store, by name."""

from __future__ import annotations

from pathlib import Path

from onthedot.stores.sql_files import load_queries

FOLDER = Path(__file__).parent
SQL = load_queries(FOLDER / "queries.sql", FOLDER / "event_queries.sql", FOLDER / "list_queries.sql")
