"""Failures of a server: errors have advice, and work continues afterwards."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from onthedot import App
from onthedot.errors import ArgumentError, StoreBusy, StoreRefused, StoreUnavailable
from onthedot.stores.contract import Completed, Lease, NewTask
from onthedot.stores.postgres import PostgresStore
from tests.support.services.ports import free_port
from tests.support.services.postgres import Service
from tests.support.services.postgres_server import Server
from tests.support.waits import SOON, until
from tests.unit.stores.postgres.shop import LEASE, Worker, opened, states

KILL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'onthedot' AND pid <> ALL (%s)"


@pytest.fixture
def server(postgres: Service, tmp_path: Path) -> Iterator[Server]:
    """A server that a test may stop and start."""
    assert postgres
    server = Server(tmp_path)
    server.make()
    server.start()
    yield server
    server.stop()


async def test_terminated_connections_are_replaced_and_hints_resync(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        await store.heartbeat("w", b"", LEASE)
        await store.add([NewTask("u1", "a", b"")])
        hints = store.hints("w")
        worker = Worker(store, "w")
        assert (await anext(hints)).resync
        await worker.claim("none")
        postgres.ask(KILL, postgres.kept_pids())
        await store.add([NewTask("u2", "a", b"")])
        claimed = await worker.claim()
        assert [record.uuid for record in claimed.tasks] == ["u1", "u2"]
        async with asyncio.timeout(SOON):
            while not (await anext(hints)).resync:
                pass
        async with opened(postgres, named) as other:  # another notifier, on the same event loop
            await other.add([NewTask("u3", "b", b"")])
            async with asyncio.timeout(SOON):
                while "b" not in (await anext(hints)).sources:
                    pass
        await hints.aclose()
        assert (await store.turn("w", [Completed(Lease("u1", claimed.fence, "w"))], None)).verdicts == ["ok"]


async def test_a_listener_cancelled_while_it_connects_leaves_no_connection(
    postgres: Service, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected = asyncio.Event()
    never = asyncio.Event()

    async def add_listener(*_: object) -> None:
        connected.set()
        await never.wait()

    async with opened(postgres, named) as store:
        with monkeypatch.context() as patched:
            patched.setattr(asyncpg.Connection, "add_listener", add_listener)
            waiting = asyncio.ensure_future(anext(store.hints("w")))
            await connected.wait()
            waiting.cancel()
            await asyncio.wait([waiting])
    # The fixture `named` fails if a connection is left.


def test_work_continues_after_a_restart_of_the_server(server: Server) -> None:
    app: App[None] = App("shop", store=f"{server.url}?lease=60", poll_interval=0.2)
    ran: list[int] = []

    @app.task
    async def note(number: int) -> int:
        ran.append(number)
        return number

    with app.background():
        assert note.delay(1).result(timeout=10) == 1
        server.stop()
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1"):
            note.delay(2)
        server.start()
        handles = note.delay_many([{"number": number} for number in range(3, 20)])
        assert [handle.result(timeout=20) for handle in handles] == list(range(3, 20))
    assert sorted(ran) == [1, *range(3, 20)]


async def test_a_lock_held_by_others_raises_busy_and_writes_nothing(postgres: Service, named: str) -> None:
    """Such as a migration. The error says that nothing was written, and a later call succeeds."""
    async with opened(postgres, named) as store:
        other = await asyncpg.connect(postgres.url)
        transaction = other.transaction()
        await transaction.start()
        await other.execute("LOCK TABLE onthedot.place IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreBusy, match="nothing was written"):
            await store.add([NewTask("u1", "a", b"")])
        await transaction.rollback()
        await other.close()
        assert await states(store, "u1") == [None]
        await store.add([NewTask("u1", "a", b"")])
        assert await states(store, "u1") == ["ready"]


async def test_a_cancelled_call_does_not_mix_up_answers(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        await store.add([NewTask("u1", "a", b"")])
        for _ in range(3):
            reading = asyncio.create_task(store.get(["u1"]))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            assert await states(store, "u2") == [None]


async def test_an_unreachable_server_raises_unavailable_without_the_password() -> None:
    store = PostgresStore(f"postgresql://me:secret@127.0.0.1:{free_port()}/shop")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1") as caught:
        await store.open()
    assert "secret" not in str(caught.value)


async def test_a_missing_database_is_refused_with_advice(postgres: Service) -> None:
    store = PostgresStore(postgres.url.rpartition("/")[0] + "/nowhere")
    with pytest.raises(StoreRefused, match="make the database first"):
        await store.open()


async def test_an_unknown_option_of_the_url_is_refused_with_the_known_ones(postgres: Service) -> None:
    store = PostgresStore(f"{postgres.url}?leese=5")
    with pytest.raises(
        StoreRefused, match=r'"leese"; is it an option of the store.s URL\? Its own are auto_schema, lease'
    ):
        await store.open()


async def test_a_missing_driver_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(StoreRefused, match=r"onthedot\[postgres\]"):
        await PostgresStore("postgresql://127.0.0.1/shop").open()


async def test_a_value_that_postgres_cannot_store_raises_argument_error(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        with pytest.raises(ArgumentError, match="cannot store"):
            await store.add([NewTask("u1", "a", b"", unique="a\0b")])
        await store.add([NewTask("u2", "a", b"a\0b")])
        assert await states(store, "u1", "u2") == [None, "ready"]


async def test_without_a_statement_cache_nothing_is_prepared_or_set(postgres: Service, named: str) -> None:
    """As PgBouncer needs it in transaction mode: no named statement, no setting of the session."""
    store = PostgresStore(f"{postgres.url}?statement_cache_size=0", name=named)
    await store.open()
    await store.heartbeat("w", b"", LEASE)
    await store.add([NewTask("u1", "a", b"")])
    assert [record.uuid for record in (await Worker(store, "w").claim()).tasks] == ["u1"]
    prepared = await store.connections.turn.rows("SELECT name FROM pg_prepared_statements")
    changed = "SELECT name FROM pg_settings WHERE source = 'session' AND name LIKE 'enable%'"
    settings = await store.connections.turn.rows(changed)
    assert (list(prepared), list(settings)) == ([], [])
    await store.close()


@pytest.mark.parametrize("options", ["lease=soon", "lease=0", "lease=inf", "statement_cache_size=-1"])
def test_invalid_options_are_refused(options: str) -> None:
    with pytest.raises(StoreRefused, match=r"lease must be seconds.* whole number"):
        PostgresStore(f"postgresql://127.0.0.1/shop?{options}")


def test_a_lease_may_have_fractions_of_a_second() -> None:
    assert PostgresStore("postgresql://127.0.0.1/shop?lease=0.5").traits.lease_ms == 500


async def test_an_overdue_session_is_reaped_by_the_clock_of_the_server(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        await store.heartbeat("dead", b"", LEASE)
        await store.heartbeat("w", b"", LEASE)
        await store.add([NewTask("u1", "a", b"")])
        assert len((await Worker(store, "dead").claim()).tasks) == 1
        await store.heartbeat("dead", b"", 1)
        worker = Worker(store, "w")
        taken = list[str]()

        async def found() -> bool:
            taken.extend(record.uuid for record in (await worker.claim()).tasks)
            return bool(taken)

        await until(found)
        assert taken == ["u1"]
        assert not (await store.heartbeat("dead", b"", LEASE)).alive
