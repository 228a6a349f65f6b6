"""The statements of the SQLite store, as texts."""

from __future__ import annotations

import re

from onthedot.stores.sqlite.queries import SQL


def test_no_statement_numbers_its_parameters() -> None:
    """Python 3.12 warns of `?1` with a sequence of values, and 3.14 refuses it: write `?`, or `:name` with a dict."""
    assert [name for name, text in SQL.items() if re.search(r"\?\d", text)] == []
