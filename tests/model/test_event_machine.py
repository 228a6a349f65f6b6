"""A store and the naive outbox take the same random steps with events, and must never differ.

`ONTHEDOT_EXAMPLES=5000` runs longer than CI. Another store: a class with its `On…`, and its settings.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

from onthedot.stores.contract import Store
from onthedot.stores.sqlite import event_tables
from tests.model.event_machine import EventStores
from tests.model.example_settings import EXAMPLES, FEWER, SETTINGS
from tests.model.stores import OnPostgres, OnSqlite


class SqliteEventStores(OnSqlite, EventStores):
    """Its pages are as short as possible, so that examples need several."""

    def made(self) -> Store:
        self._page = event_tables.MIN_PAGE
        event_tables.MIN_PAGE = 1
        return super().made()

    def teardown(self) -> None:
        super().teardown()
        event_tables.MIN_PAGE = self._page


class PostgresEventStores(OnPostgres, EventStores):
    pass


EventStores.TestCase.settings = SETTINGS
PostgresEventStores.TestCase.settings = FEWER
SqliteEventStores.TestCase.settings = settings(SETTINGS, max_examples=max(1, EXAMPLES // 2))
TestEventStores = pytest.mark.timeout(600)(EventStores.TestCase)
TestSqliteEventStores = pytest.mark.timeout(1200)(SqliteEventStores.TestCase)
TestPostgresEventStores = pytest.mark.timeout(1200)(pytest.mark.usefixtures("postgres")(PostgresEventStores.TestCase))
