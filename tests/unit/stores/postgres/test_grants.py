"""The rights that ``onthedot schema print --role`` prints: a worker can do its work, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import psycopg
import pytest
from click.testing import CliRunner

from onthedot import App, AtMost, Rate, Reject, current_task
from onthedot.cli import main
from onthedot.clock.system import SystemClock
from onthedot.errors import StoreRefused
from onthedot.events import Event, Events
from onthedot.operations.health import read_health, read_vitals
from onthedot.stores.capabilities import HasServerInfo
from onthedot.stores.contract import (
    Arrival,
    Completed,
    Counter,
    Lease,
    Links,
    NewSignal,
    NewTask,
    Note,
    RelayRequest,
    Suspended,
    Wait,
)
from onthedot.stores.postgres import PostgresStore
from onthedot.stores.postgres.grants import called_functions, rights_text
from tests.contract.event_steps import TOPIC, event, handle
from tests.support.services.postgres import Service
from tests.support.waits import SOON, until
from tests.unit.stores.postgres.shop import LEASE, Worker

ROLE = "worker-1"
PUBLISH = """SELECT onthedot.publish_v1(
    '{"app": "events", "events": [{"type": "Shop.Order.Placed", "aggregate_id": "17", "payload": {}}]}')"""


def as_role(url: str, role: str = ROLE, database: str = "postgres") -> str:
    return url.replace("postgres@", f"{role}@").rpartition("/")[0] + f"/{database}"


@pytest.fixture(scope="module")
def limited(postgres: Service) -> Iterator[str]:
    """The URL of a role with these rights, in a database that another role owns."""
    postgres.ask("CREATE DATABASE limited")
    owner = as_role(postgres.url, "postgres", "limited")
    result = CliRunner().invoke(main, ["schema", "install", "--store", owner])
    assert result.exit_code == 0, result.output
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(f'CREATE ROLE "{ROLE}" LOGIN')
        connection.execute("CREATE TABLE public.secret AS SELECT 42 AS answer")
        printed = CliRunner().invoke(main, ["schema", "print", "--role", ROLE, "--store", owner])
        connection.execute(printed.output)
        connection.execute(printed.output)  # it can be repeated
    yield as_role(postgres.url, database="limited") + "?auto_schema=0"
    postgres.ask("DROP DATABASE limited WITH (FORCE)")
    postgres.ask(f'DROP ROLE "{ROLE}"')


async def test_the_role_can_do_everything_that_a_worker_does(limited: str) -> None:
    app = App("shop", store=limited, stop_timeout=0)

    @app.task(max_retries=1, backoff=[0], limits=[Rate("100/s", by="to"), AtMost(1, by="to")], unique=True)
    async def send(to: str) -> str:
        if current_task().attempt == 1:
            current_task().progress(1, 2)
            raise OSError("again")
        return to

    @app.schedule("0 3 * * *")
    async def nightly() -> None: ...

    async with app.running():
        handles = [await send.options(after=0.01).enqueue(str(number)) for number in range(5)]
        assert [await handle.result(timeout=20) for handle in handles] == [str(number) for number in range(5)]
        late = await send.options(after=60).enqueue("late")
        assert (await app.explain(late.uuid)).reason == "not_due"
        await late.cancel()
        assert await app.retry(late.uuid) == [late.uuid]
        assert await late.result(timeout=20) == "late"
        assert [schedule.name for schedule in await app.schedules.list()] == ["nightly"]
        await app.schedules.pause("nightly")
        await app.purge()
        assert len(await app.find(state="succeeded")) == 6


async def test_the_role_can_work_with_counters_and_signals(limited: str) -> None:
    store = PostgresStore(limited, name="flows")
    await store.open()
    worker = Worker(store, "w")
    await store.heartbeat("w", b"", LEASE)
    await store.add([NewTask("u1", "a", b"", links=Links("u2", ("f",)))])
    await store.add([NewTask("u2", "a", b"", links=Links("u2", waits=Wait((("f", 1),))))])
    await store.subscribe("w", ["u1"])
    first = Lease("u1", (await worker.claim()).fence, "w")
    assert await store.note([Note(first, "item", "1", b"[1]")]) == []
    claimed = await worker.claim(outcomes=[Completed(first)])
    assert [record.uuid for record in claimed.tasks] == ["u2"]
    await store.turn("w", [Suspended(Lease("u2", claimed.fence, "w"), Wait((("~s", 1),)))], None)
    assert list(await store.signal([NewSignal("~s", "1")])) == [True]
    assert [signal.id for signal in (await store.signals("~s", 0, 10)).signals] == ["1"]
    assert await store.counters(["f"]) == [Counter(1)]
    assert [record.uuid for record in (await store.find({"waits_for": "~s"}, None, 10)).rows] == ["u2"]
    assert [record.uuid for record in (await worker.claim()).tasks] == ["u2"]
    await store.purge(10)
    await store.close()


async def test_the_role_can_publish_relay_read_and_complete(limited: str) -> None:
    store = PostgresStore(limited, name="events")
    await store.open()
    await store.heartbeat("r", b"", LEASE)
    with psycopg.connect(limited.partition("?")[0]) as connection:
        assert list(store.publish_in(connection, [event(event_id="1")])) == [True]
        store.create_handle_in(connection, handle())
        connection.execute(PUBLISH)
    sent = (await store.relay("r", [], {}, RelayRequest(), to_log=True)).events
    assert len(sent) == 2
    await store.relay("r", [sent[0].seq], {sent[1].seq: "refused"}, RelayRequest(), to_log=True)
    assert await store.amend_events([sent[1].event.id], "discard") == [sent[1].event.id]
    page = await store.read_log("g", "r", [TOPIC], {}, 100)
    assert [stored.event.id for stored in page.events] == ["1"]
    await store.commit_positions("g", "r", page.buckets)
    await store.record_arrivals([Arrival("c1", "1", "Done", b"{}")])
    assert [each.id for each in await store.complete_handles(["c1"])] == ["h1"]
    assert [each.status for each in await store.handles(["c1"])] == ["complete"]
    assert len(await store.arrivals("c1")) == 1
    assert dict((await store.outbox_state()).lag) == {"g": 0}
    assert await store.purge_events(10, keep_sent=0, keep_arrivals=0) == 3
    await store.close()


async def test_the_role_adds_tasks_in_its_transaction(limited: str) -> None:
    app = App("shop", store=limited, stop_timeout=0)
    connection = await asyncpg.connect(limited.partition("?")[0])
    async with app.running(), connection.transaction():

        @app.task
        async def receipt() -> str:
            return "here"

        handle = await receipt.options(connection=connection).enqueue()
        await asyncio.sleep(0)
    await connection.close()
    async with app.running():
        assert await handle.result(timeout=20) == "here"


async def test_the_role_can_read_the_server_info(limited: str) -> None:
    store = PostgresStore(limited)
    await store.open()
    here = SystemClock().now()
    assert isinstance(store, HasServerInfo)
    assert abs((await store.server()).now - here) < 10_000
    assert {check.what for check in (await read_health(read_vitals(store, here))).checks} >= {"store", "clock"}
    await store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE onthedot.mine (a int)",
        "DROP TABLE onthedot.task",
        "INSERT INTO onthedot.tally VALUES (1, 'a', 'ready', 1)",
        "UPDATE onthedot.version SET number = 0",
        "DELETE FROM onthedot.task",
        "INSERT INTO onthedot.event_outbox SELECT",
        "UPDATE onthedot.event_bucket SET session = 'mine'",
        "DELETE FROM onthedot.flow_resume_handles",
        "SELECT onthedot.mark_sent_v1(1, '{1}', false, 0)",
        "SELECT nextval('onthedot.fence')",
        "SELECT onthedot.lock_limits_v1(1)",
        "SELECT onthedot.count_v1(1, 'a', 'ready', 1)",
        "ALTER FUNCTION onthedot.delete_schedules_v1(json) SECURITY INVOKER",
        "SELECT * FROM public.secret",
        "CREATE SCHEMA mine",
    ],
)
def test_the_role_can_do_nothing_else(limited: str, statement: str) -> None:
    url = limited.partition("?")[0]
    with psycopg.connect(url, autocommit=True) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement)


def test_a_temporary_table_of_the_role_does_not_shadow_ours(limited: str) -> None:
    """A verb acts with the rights of its owner, so it must not use tables that the caller can create."""
    with psycopg.connect(limited.partition("?")[0], autocommit=True) as connection:
        connection.execute("CREATE TEMP TABLE app (id int, name text)")
        connection.execute("INSERT INTO pg_temp.app VALUES (7, 'shop')")
        found = connection.execute("SELECT onthedot.app_v1('shop')").fetchone()
        assert found == connection.execute("SELECT id FROM onthedot.app WHERE name = 'shop'").fetchone()


@pytest.mark.parametrize("database", ["limited", "template1"])
async def test_a_role_without_rights_is_refused_with_advice(postgres: Service, limited: str, database: str) -> None:
    """Both where the schema exists and where it would have to be created."""
    postgres.ask("CREATE ROLE guest LOGIN")
    try:
        with pytest.raises(StoreRefused, match=r"permission denied for .*schema install`.*schema print --role USER"):
            await PostgresStore(as_role(postgres.url, "guest", database)).open()
    finally:
        postgres.ask("DROP ROLE guest")


def test_the_rights_include_every_verb() -> None:
    called = called_functions()
    assert {"add_v1", "turn_v1", "app_v1", "settle_in_v1"} <= set(called.verbs)
    assert {"now_v1", "history_v1"} <= set(called.readers)
    assert '"worker-1"' in rights_text(ROLE)


async def test_the_role_runs_relay_agents_and_callback_service(limited: str) -> None:
    app = App("shop", store=limited, events=Events(bus="store", results=("Shop.Order.Shipped",)), stop_timeout=0)

    @app.agent("packer", consumes="Shop.Order.Placed", fails_as="Shop.Order.Failed")
    async def pack(event: Event) -> Event:
        if event.payload["id"] == 2:
            raise Reject("no such order")
        return event.reply("Shop.Order.Shipped", {"id": event.payload["id"]})

    async with app.running():
        handle = await app.expect({"Shop.Order.Shipped": 1}, correlation_id="c1", timeout=60)
        events = [
            Event("Shop.Order.Placed", {"id": number}, aggregate_id=str(number), correlation_id="c1")
            for number in (1, 2)
        ]
        await app.publish(*events)
        (shipped,) = await asyncio.wait_for(handle.wait(), SOON)
        assert shipped.causation_id == events[0].id

        async def has_dead_letter() -> bool:
            sent = await app.operations.outbox.events(status="sent", topic="shop.order.events.DLT")
            return len(sent) == 1

        await until(has_dead_letter)
