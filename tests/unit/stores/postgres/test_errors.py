"""What goes wrong with a server: it is told in words, and everything goes on when it is over."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from onthedot import App
from onthedot.errors import StoreBusy, StoreRefused, StoreUnavailable
from onthedot.stores.contract import Completed, Lease, NewTask
from onthedot.stores.postgres import PostgresStore
from tests.support.services.postgres import Service
from tests.support.services.postgres_server import Server, free_port
from tests.support.waits import until
from tests.unit.stores.postgres.shop import LEASE, Worker, opened, states

KILL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'onthedot' AND pid <> ALL (%s)"


@pytest.fixture
def server(postgres: Service, tmp_path: Path) -> Iterator[Server]:
    """One of its own, to be stopped and started."""
    assert postgres
    server = Server(tmp_path)
    server.make()
    server.start()
    yield server
    server.stop()


async def test_connections_that_were_cut_are_made_again(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        await store.heartbeat("w", b"", LEASE)
        await store.add([NewTask("u1", "a", b"")])
        hints, worker = store.hints("w"), Worker(store, "w")
        assert (await anext(hints)).resync
        await worker.claim("none")
        postgres.ask(KILL, postgres.kept_pids())
        await store.add([NewTask("u2", "a", b"")])
        claimed = await worker.claim()
        assert [record.uuid for record in claimed.tasks] == ["u1", "u2"]
        async with asyncio.timeout(5):
            while not (await anext(hints)).resync:
                pass
        async with opened(postgres, named) as other:  # on the same loop, and yet another's words
            await other.add([NewTask("u3", "b", b"")])
            async with asyncio.timeout(5):
                while "b" not in (await anext(hints)).sources:
                    pass
        await hints.aclose()
        assert (await store.turn("w", [Completed(Lease("u1", claimed.fence, "w"))], None)).verdicts == ["ok"]


async def test_one_that_is_cancelled_while_it_begins_to_hear_leaves_no_connection(
    postgres: Service, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected, never = asyncio.Event(), asyncio.Event()

    async def add_listener(*_: object) -> None:
        connected.set()
        await never.wait()

    async with opened(postgres, named) as store:
        with monkeypatch.context() as patched:
            patched.setattr(asyncpg.Connection, "add_listener", add_listener)
            hearing = asyncio.ensure_future(anext(store.hints("w")))
            await connected.wait()
            hearing.cancel()
            await asyncio.wait([hearing])
    # The fixture `named` looks whether a connection is left.


def test_a_restart_of_the_server(server: Server) -> None:
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


async def test_a_lock_that_somebody_holds(postgres: Service, named: str) -> None:
    """A migration, say. Nothing is written, the words say so, and afterwards it goes on."""
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


async def test_who_gives_up_waiting_does_not_get_the_next_ones_answer(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        await store.add([NewTask("u1", "a", b"")])
        for _ in range(3):
            asking = asyncio.create_task(store.get(["u1"]))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
            assert await states(store, "u2") == [None]


async def test_nobody_there() -> None:
    store = PostgresStore(f"postgresql://me:secret@127.0.0.1:{free_port()}/shop")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1") as caught:
        await store.open()
    assert "secret" not in str(caught.value)


async def test_a_database_that_is_not_there(postgres: Service) -> None:
    store = PostgresStore(postgres.url.rpartition("/")[0] + "/nowhere")
    with pytest.raises(StoreRefused, match="make the database first"):
        await store.open()


async def test_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(StoreRefused, match=r"onthedot\[postgres\]"):
        await PostgresStore("postgresql://127.0.0.1/shop").open()


async def test_what_postgres_cannot_store(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        with pytest.raises(ValueError, match="cannot store"):
            await store.add([NewTask("u1", "a", b"", unique="a\0b")])
        await store.add([NewTask("u2", "a", b"a\0b")])
        assert await states(store, "u1", "u2") == [None, "ready"]


async def test_behind_a_pooler_nothing_is_prepared(postgres: Service, named: str) -> None:
    """As behind PgBouncer in transaction mode: no statement has a name, no session a state."""
    store = PostgresStore(f"{postgres.url}?statement_cache_size=0", name=named)
    await store.open()
    await store.heartbeat("w", b"", LEASE)
    await store.add([NewTask("u1", "a", b"")])
    assert [record.uuid for record in (await Worker(store, "w").claim()).tasks] == ["u1"]
    named_ones = await store.connections.turn.rows("SELECT name FROM pg_prepared_statements")
    changed = "SELECT name FROM pg_settings WHERE source = 'session' AND name LIKE 'enable%'"
    settings = await store.connections.turn.rows(changed)
    assert (list(named_ones), list(settings)) == ([], [])
    await store.close()


@pytest.mark.parametrize("options", ["lease=soon", "lease=0", "lease=inf", "statement_cache_size=-1"])
def test_options_that_cannot_be(options: str) -> None:
    with pytest.raises(StoreRefused, match=r"lease must be seconds.* whole number"):
        PostgresStore(f"postgresql://127.0.0.1/shop?{options}")


def test_a_lease_has_parts_of_a_second() -> None:
    assert PostgresStore("postgresql://127.0.0.1/shop?lease=0.5").traits.lease_ms == 500


async def test_a_session_that_lapses_is_reclaimed_by_the_servers_own_clock(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        await store.heartbeat("dead", b"", LEASE)
        await store.heartbeat("w", b"", LEASE)
        await store.add([NewTask("u1", "a", b"")])
        assert len((await Worker(store, "dead").claim()).tasks) == 1
        await store.heartbeat("dead", b"", 1)
        worker, taken = Worker(store, "w"), list[str]()

        async def found() -> bool:
            taken.extend(record.uuid for record in (await worker.claim()).tasks)
            return bool(taken)

        await until(found)
        assert taken == ["u1"]
        assert not (await store.heartbeat("dead", b"", LEASE)).alive
