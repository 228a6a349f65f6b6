"""Stores that many machines share, each test its own, and what can be done to them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import LONG
from tests.faults.commits import Commits
from tests.support.services import valkey
from tests.support.services.postgres_server import Missing, Server


class Ground:
    """A server of the test's own. `lease` in seconds."""

    def at(self, lease: float, port: int | None = None) -> str:
        """The store's URL; port: of a proxy on the way to it."""
        raise NotImplementedError

    port: int

    def stop(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def drop_hints(self, drop: bool = True) -> None:
        """Whoever tells others of something is not heard from now on."""
        raise NotImplementedError

    def commits(self) -> Commits:
        """From now on. The store is there already."""
        return Commits()


class OnRedis(Ground):
    def __init__(self, server: valkey.Server) -> None:
        self._server = server
        self.port = server.port

    def at(self, lease: float, port: int | None = None) -> str:
        return f"redis://127.0.0.1:{port or self.port}?lease={lease}"

    def stop(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start(self.port)

    def drop_hints(self, drop: bool = True) -> None:
        assert self._server.ask("ACL", "SETUSER", "default", "-publish" if drop else "+publish") == b"+OK"


class OnPostgres(Ground):
    """Workers are not its superuser, so that something can be forbidden to them."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.port = server.port
        self._say("CREATE ROLE worker LOGIN", "GRANT CREATE ON DATABASE postgres TO worker")

    def _say(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self._server.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def at(self, lease: float, port: int | None = None) -> str:
        return f"postgresql://worker@127.0.0.1:{port or self.port}/postgres?lease={lease}"

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.start()

    def commits(self) -> Commits:
        """Its log is in the order in which transactions began: in which they end is written down as they do."""
        self._say(*_ORDERED)
        return Commits(self._order)

    def _order(self) -> list[int]:
        import psycopg

        with psycopg.connect(self._server.url) as connection:
            return [call for (call,) in connection.execute("SELECT call FROM watch.ended ORDER BY number")]

    def drop_hints(self, drop: bool = True) -> None:
        how, whom = ("REVOKE", "FROM") if drop else ("GRANT", "TO")
        self._say(f"{how} EXECUTE ON FUNCTION pg_notify(text, text) {whom} PUBLIC")


# Deferred: at the commit. From its lock on, which goes when others see what was done, nobody else commits moves.
_ORDERED = (
    "CREATE SCHEMA watch",
    "CREATE TABLE watch.ended (number bigint GENERATED ALWAYS AS IDENTITY, call bigint PRIMARY KEY)",
    """CREATE FUNCTION watch.end() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
        PERFORM pg_advisory_xact_lock(7, 7);
        INSERT INTO watch.ended (call) VALUES (NEW.call) ON CONFLICT DO NOTHING;
        RETURN NULL;
    END $$""",
    """CREATE CONSTRAINT TRIGGER ended AFTER INSERT ON onthedot.change DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION watch.end()""",
)


@contextlib.contextmanager
def on_redis() -> Iterator[OnRedis]:
    """It has on its disk what it has answered for."""
    with valkey.server("--appendonly", "yes", "--appendfsync", "always") as server:
        yield OnRedis(server)


@contextlib.contextmanager
def on_postgres() -> Iterator[OnPostgres]:
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder))
        try:
            server.make()
            server.start()
        except Missing as why:
            valkey.missing(str(why))
        try:
            yield OnPostgres(server)
        finally:
            server.stop()


GROUNDS = {"redis": on_redis, "postgres": on_postgres}


def grounds(*short: str) -> list[object]:
    """Parameters for a test: all of them in a long run, else these."""
    long = pytest.mark.skip("ONTHEDOT_FAULTS=long")
    return [pytest.param(name, marks=() if LONG or name in short else long) for name in GROUNDS]
