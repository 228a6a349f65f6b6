"""Stores on a server that a test starts for itself, and the faults that can be caused there."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onthedot.stores.redis.scripts import SCRIPTS
from tests.faults import LONG
from tests.faults.commit_log import CommitLog, Transitions
from tests.support.services import valkey
from tests.support.services.postgres_server import SETTINGS, Missing, Server


class ServerStore:
    """A server that belongs to one test. `lease` is in seconds."""

    name: str
    port: int

    def url(self, lease: float, port: int | None = None) -> str:
        """The URL of the store; `port` is that of a proxy, if there is one."""
        raise NotImplementedError

    heartbeat: bytes  # what a connection that sends heartbeats sends first

    def stop(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def drop_hints(self, drop: bool = True) -> None:
        """Forbids the server to deliver hints, or allows it again."""
        raise NotImplementedError

    def leftovers(self) -> list[str]:
        """Places, lanes, alarms, claims, chores, waiters, wakes and subscriptions. There are none when all tasks have
        ended."""
        raise NotImplementedError

    def subscribers(self, app: str) -> list[str]:
        """The sessions that hear of a task, once per task."""
        raise NotImplementedError

    def commits(self) -> CommitLog:
        """A log of the commits from now on. The store must exist."""
        return CommitLog()


class RedisServer(ServerStore):
    name = "redis"
    heartbeat = SCRIPTS["heartbeat"].sha.encode()

    def __init__(self, server: valkey.Server) -> None:
        self._server = server
        self.port = server.port

    def url(self, lease: float, port: int | None = None) -> str:
        return f"redis://127.0.0.1:{port or self.port}?lease={lease}"

    def stop(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start(self.port)

    def drop_hints(self, drop: bool = True) -> None:
        assert self._server.ask("ACL", "SETUSER", "default", "-publish" if drop else "+publish") == b"+OK"

    def leftovers(self) -> list[str]:
        import redis

        with redis.Redis.from_url(self._server.url) as client:
            keys = [key.decode(errors="replace") for key in client.scan_iter("*", count=1000)]
            kinds = [(key, key.rpartition("}")[2].lstrip(":").partition(":")[0]) for key in keys]
            left = [key for key, kind in kinds if kind in _TRANSIENT_KEYS]
            leases = [key for key, kind in kinds if kind == "leased" and client.hlen(key) > 1]  # 1: a placeholder
            return left + leases

    def subscribers(self, app: str) -> list[str]:
        import redis

        with redis.Redis.from_url(self._server.url, decode_responses=True) as client:
            keys = client.scan_iter(f"*{{{app}}}*subscribers:*", count=1000)
            return sorted(session for key in keys for session in client.smembers(key))


_TRANSIENT_KEYS = frozenset(
    {
        "ready", "suspect", "parked", "parked_lanes", "alarms", "chores", "claims", "claim_remaining",
        "cancel_requests", "lane", "lane_refills", "waiting", "waiters", "dirty_counters", "subscribers",
    }
)  # fmt: skip


_TRANSIENT_TABLES = ("place", "claim", "lane_check", "waiter", "counter_delta", "subscription")


class PostgresServer(ServerStore):
    """Workers are not superusers, so that rights can be revoked from them."""

    name = "postgres"
    heartbeat = b"onthedot.heartbeat_v1"

    def __init__(self, server: Server) -> None:
        self._server = server
        self.port = server.port
        self.execute("CREATE ROLE worker LOGIN", "GRANT CREATE ON DATABASE postgres TO worker")

    @property
    def admin_url(self) -> str:
        return self._server.url

    def execute(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self._server.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def url(self, lease: float, port: int | None = None) -> str:
        return f"postgresql://worker@127.0.0.1:{port or self.port}/postgres?lease={lease}"

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.start()

    def die(self, how: signal.Signals) -> None:
        """SIGQUIT: an immediate shutdown. SIGKILL: of the server and all its processes, as in a power cut."""
        self._server.die(how)

    def commits(self) -> CommitLog:
        """A page of the change feed is in the order in which transactions began. A trigger records their commits."""
        self.execute(*_ORDERED)
        return CommitLog(self._ordered)

    def _ordered(self) -> list[Transitions]:
        import psycopg

        calls: dict[int, list[tuple[str, str]]] = {}
        with psycopg.connect(self._server.url) as connection:
            for call, state, uuids in connection.execute("SELECT call, state, uuids FROM watch.ended ORDER BY number"):
                calls.setdefault(call, []).extend((uuid, state) for uuid in uuids)
        return [*calls.values()]

    def leftovers(self) -> list[str]:
        import psycopg

        with psycopg.connect(self._server.url) as connection:
            return [f"{table}: {row}" for table in _TRANSIENT_TABLES for row in connection.execute(
                f"SELECT * FROM onthedot.{table} LIMIT 20")]  # fmt: skip

    def subscribers(self, app: str) -> list[str]:
        import psycopg

        with psycopg.connect(self._server.url) as connection:
            found = connection.execute(
                "SELECT session FROM onthedot.subscription WHERE app = (SELECT id FROM onthedot.app WHERE name = %s)",
                [app],
            )
            return sorted(session for (session,) in found)

    def drop_hints(self, drop: bool = True) -> None:
        verb, preposition = ("REVOKE", "FROM") if drop else ("GRANT", "TO")
        self.execute(f"{verb} EXECUTE ON FUNCTION pg_notify(text, text) {preposition} PUBLIC")


# The trigger is deferred to the commit. Its lock is held until the commit is visible, so commits are recorded in order.
_ORDERED = (
    "CREATE SCHEMA watch",
    "CREATE TABLE watch.ended (number bigint GENERATED ALWAYS AS IDENTITY, call bigint, state text, uuids text[])",
    """CREATE FUNCTION watch.end() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
        PERFORM pg_advisory_xact_lock(7, 7);
        INSERT INTO watch.ended (call, state, uuids) SELECT NEW.call, NEW.state, CASE WHEN NEW.seqs IS NULL
            THEN ARRAY(SELECT json_array_elements_text(NEW.deleted))
            ELSE ARRAY(SELECT uuid FROM onthedot.task WHERE seq = ANY (NEW.seqs)) END;
        RETURN NULL;
    END $$""",
    """CREATE CONSTRAINT TRIGGER ended AFTER INSERT ON onthedot.change DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION watch.end()""",
)


@contextlib.contextmanager
def on_redis() -> Iterator[RedisServer]:
    """A server that syncs every write before it answers."""
    with valkey.server("--appendonly", "yes", "--appendfsync", "always") as server:
        yield RedisServer(server)


@contextlib.contextmanager
def on_postgres(**settings: str) -> Iterator[PostgresServer]:
    """settings: of the server, instead of those that make tests fast."""
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder), {**SETTINGS, **settings})
        try:
            server.make()
            server.start()
        except Missing as missing:
            valkey.missing(str(missing))
        try:
            yield PostgresServer(server)
        finally:
            server.stop()


class SqliteFile(ServerStore):
    """A file that processes of one machine share. It has no lease: a death is noticed at once."""

    name = "sqlite"
    port = 0

    def __init__(self, path: Path) -> None:
        self.path = path

    def url(self, lease: float, port: int | None = None) -> str:
        return f"sqlite:///{self.path}"


@contextlib.contextmanager
def on_sqlite() -> Iterator[SqliteFile]:
    with tempfile.TemporaryDirectory(prefix="sqlite-") as folder:
        yield SqliteFile(Path(folder, "shop.db"))


SERVER_STORES: dict[str, Callable[[], contextlib.AbstractContextManager[ServerStore]]] = {
    "redis": on_redis,
    "postgres": on_postgres,
}
PROCESS_STORES = {"sqlite": on_sqlite, **SERVER_STORES}
"""The stores that several processes share."""


def server_store_params(*short: str) -> list[object]:
    """Parameters for a test: all servers in a long run, else these."""
    long = pytest.mark.skip("ONTHEDOT_FAULTS=long")
    return [pytest.param(name, marks=() if LONG or name in short else long) for name in SERVER_STORES]
