"""A store and the naive store take the same random steps and must never differ.

`ONTHEDOT_EXAMPLES=5000` runs longer than CI; a failure prints the steps, and the blob that repeats them.
"""

from __future__ import annotations

import pytest

from tests.model.example_settings import FEWER, SETTINGS
from tests.model.machine import Stores
from tests.model.stores import OnPostgres, OnRedis, OnSqlite


class SqliteStores(OnSqlite, Stores):
    pass


class PostgresStores(OnPostgres, Stores):
    pass


class RedisStores(OnRedis, Stores):
    pass


Stores.TestCase.settings = SETTINGS
for machine in (SqliteStores, PostgresStores, RedisStores):
    machine.TestCase.settings = FEWER
TestStores = pytest.mark.timeout(600)(Stores.TestCase)
TestSqliteStores = pytest.mark.timeout(1200)(SqliteStores.TestCase)
TestPostgresStores = pytest.mark.timeout(1200)(pytest.mark.usefixtures("postgres")(PostgresStores.TestCase))
TestRedisStores = pytest.mark.timeout(1200)(RedisStores.TestCase)
