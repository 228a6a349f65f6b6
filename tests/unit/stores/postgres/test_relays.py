"""Relays and readers beside open transactions and each other: late commits, stale owners, the order of the log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
import pytest

from onthedot import App
from onthedot.events import Event, Events
from onthedot.runtime.components import ComponentFactory
from onthedot.stores.contract import BUCKETS, NewEvent, RelayRequest, RelayResult
from onthedot.stores.postgres import PostgresStore
from tests.contract.event_steps import TOPIC, bucket_of, event, handle, key_in
from tests.contract.test_resume_handles import arrival
from tests.support.services.postgres import Service
from tests.support.waits import SOON, until
from tests.unit.stores.postgres.callers import by_asyncpg
from tests.unit.stores.postgres.shop import LEASE, opened

ALL = list(range(BUCKETS))


@asynccontextmanager
async def relays(service: Service, app: str, number: int) -> AsyncIterator[list[PostgresStore]]:
    """Stores with connections of their own; the session of each is open."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(service, app)) for _ in range(number)]
        for nth, store in enumerate(stores):
            await store.heartbeat(f"r{nth}", b"", LEASE)
        yield stores


async def turn(
    store: PostgresStore, session: str = "r0", sent: Sequence[int] = (), limit: int = 500, **fields: Any
) -> RelayResult:
    return await store.relay(session, sent, {}, RelayRequest(limit, **fields), to_log=True)


async def read(store: PostgresStore, session: str = "reader", after: dict[int, int] | None = None) -> list[str]:
    await store.heartbeat(session, b"", LEASE)
    page = await store.read_log("g", session, [TOPIC], after or {}, 16_000)
    return [stored.event.id for stored in page.events]


def ids(result: RelayResult) -> list[str]:
    return [stored.event.id for stored in result.events]


def seqs(result: RelayResult) -> list[int]:
    return [stored.seq for stored in result.events]


async def waits_for_lock(service: Service, pid: int) -> None:
    query = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
    await until(lambda: service.ask(query, pid) == [(True,)])


# -- late commits


async def test_event_that_was_numbered_early_and_commits_late_is_sent(postgres: Service, named: str) -> None:
    async with relays(postgres, named, 1) as (store,), by_asyncpg(postgres.url) as late:
        await store.publish_awaited(late.connection, [event("a", event_id="early")])
        await store.publish([event("a", event_id="later"), event("b", event_id="last")])
        first = await turn(store)
        assert ids(first) == ["later", "last"]
        assert ids(await turn(store, sent=seqs(first))) == []
        await late.commit()
        second = await turn(store)
        assert ids(second) == ["early"]
        assert second.events[0].seq < first.events[0].seq
        await turn(store, sent=seqs(second))
        assert sorted(await read(store)) == ["early", "last", "later"]


async def test_open_transaction_of_a_publisher_delays_nobody(postgres: Service, named: str) -> None:
    async with relays(postgres, named, 1) as (store,), by_asyncpg(postgres.url) as caller:
        await store.publish_awaited(caller.connection, [event("a", event_id="open")])

        async def go_on() -> None:
            await store.publish([event("a", event_id="other")])
            await turn(store, sent=seqs(await turn(store)))
            assert await read(store) == ["other"]
            await store.amend_events(["other"], "retry")
            await store.purge_events(10, keep_sent=0, keep_arrivals=0)
            await store.outbox_state()

        await asyncio.wait_for(go_on(), SOON)
        await caller.rollback()


async def test_publishers_of_the_same_ids_in_another_order_do_not_block_each_other(
    postgres: Service, named: str
) -> None:
    many = [event(event_id=f"{number:03}") for number in range(200)]
    async with relays(postgres, named, 2) as stores:
        answers = await asyncio.gather(stores[0].publish(many), stores[1].publish(many[::-1]))
        assert sum(map(sum, answers)) == 200
        assert len(await stores[0].find_events({}, 0, 1000)) == 200


# -- stale relays, and the order of the log


async def test_two_relays_that_mark_the_same_events_do_not_block_each_other(postgres: Service, named: str) -> None:
    """As one does that was stopped for longer than its lease. They mark in opposite orders."""
    async with relays(postgres, named, 2) as stores:
        for number in range(5):
            keys = [key_in(bucket) for bucket in range(BUCKETS)]
            await stores[0].publish([event(key, event_id=f"{number}-{key}-{n}") for n in range(5) for key in keys])
            both = seqs(await turn(stores[0], "r0")) + seqs(await turn(stores[1], "r1"))
            assert len(both) == 5 * BUCKETS
            await asyncio.gather(
                stores[0].relay("r0", both, {}, None, to_log=True),
                stores[1].relay("r1", both[::-1], {}, None, to_log=True),
                stores[0].publish([event(event_id=f"more-{number}")]),
            )
            await turn(stores[0], "r0", sent=seqs(await turn(stores[0], "r0")))
            await turn(stores[1], "r1", sent=seqs(await turn(stores[1], "r1")))
        await check_log(stores[0], 5 * (5 * BUCKETS + 1))


async def check_log(store: PostgresStore, number: int) -> None:
    """Every event has a position, and no position is left out or given twice."""
    found = await store.find_events({"status": "sent"}, 0, 10_000)
    assert len(found) == number
    by_bucket: dict[int, list[int]] = {}
    for stored in found:
        assert stored.position is not None
        by_bucket.setdefault(stored.event.bucket, []).append(stored.position)
    for positions in by_bucket.values():
        assert sorted(positions) == list(range(1, len(positions) + 1))


async def test_position_is_visible_after_all_lower_ones(postgres: Service, named: str) -> None:
    """A relay whose transaction is open keeps another one from its bucket, and from no other."""
    low = key_in(0)
    high = key_in(1)
    async with relays(postgres, named, 2) as stores, by_asyncpg(postgres.url) as slow:
        await stores[0].publish([event(low, event_id="1"), event(low, event_id="2"), event(high, event_id="3")])
        first, second, other = seqs(await turn(stores[0]))
        request = {"app": named, "session": "r0", "sent": [first], "to_log": True}
        await slow.connection.fetchrow("SELECT * FROM onthedot.relay_v1($1)", json.dumps(request))
        await asyncio.wait_for(stores[1].relay("r1", [other], {}, None, to_log=True), SOON)
        waiting = asyncio.ensure_future(stores[1].relay("r1", [second], {}, None, to_log=True))
        pid = stores[1].connections.events.server_pid
        assert pid is not None
        await waits_for_lock(postgres, pid)
        assert await read(stores[0]) == ["3"]
        await slow.commit()
        await waiting
        assert await read(stores[0], after={0: 0, 1: 0}) == ["1", "2", "3"]


async def test_reader_beside_many_relays_misses_nothing(postgres: Service, named: str) -> None:
    async with relays(postgres, named, 4) as stores:
        await stores[0].heartbeat("reader", b"", LEASE)
        seen: list[NewEvent] = []
        positions: dict[int, int] = {}
        total = 600
        done = 0

        async def publish() -> None:
            for number in range(0, total, 10):
                await stores[0].publish([event(f"k{n % 37}", event_id=f"{n:04}") for n in range(number, number + 10)])

        async def relay(nth: int) -> None:
            nonlocal done
            sent: list[int] = []
            while done < total:
                result = await turn(stores[nth], f"r{nth}", sent, 17)
                done += len(sent)
                sent = seqs(result)

        async def read_all() -> None:
            nonlocal positions
            while len(seen) < total:
                page = await stores[0].read_log("g", "reader", [TOPIC], positions, 64)
                assert page.alive
                positions = dict(page.buckets)
                seen.extend(stored.event for stored in page.events)

        await asyncio.wait_for(asyncio.gather(publish(), *map(relay, range(1, 4)), read_all()), SOON)
        await check_log(stores[0], total)
    assert len({each.id for each in seen}) == total
    for key in {each.key for each in seen}:
        of_key = [each.id for each in seen if each.key == key]
        assert of_key == sorted(of_key), "in the order of publishing"


async def test_every_bucket_has_one_owner_while_relays_come_and_go(postgres: Service, named: str) -> None:
    async with relays(postgres, named, 6) as stores:
        for round_ in range(6):
            if round_ == 3:
                await stores[5].close_session("r5")
                stores.pop()
            results = await asyncio.gather(*(turn(store, f"r{nth}") for nth, store in enumerate(stores)))
            owned = [bucket for result in results for bucket in result.buckets]
            assert len(owned) == len(set(owned))
        state = await stores[0].outbox_state()
        assert sorted(state.owners[""]) == ALL
        assert max(list(state.owners[""].values()).count(f"r{nth}") for nth in range(5)) == 4


# -- resume handles


async def test_handle_of_an_open_transaction_is_completed_by_its_creator(postgres: Service, named: str) -> None:
    """The callback service cannot see it, and the creator looks after its commit."""
    async with relays(postgres, named, 2) as stores, by_asyncpg(postgres.url) as caller:
        await stores[0].create_handle_awaited(caller.connection, handle())
        await stores[1].record_arrivals([arrival("1")])
        assert list(await stores[1].complete_handles(["c1"])) == []
        await caller.commit()
        assert [each.id for each in await stores[0].complete_handles(["c1"])] == ["h1"]


async def test_creators_of_one_handle_get_the_same(postgres: Service, named: str) -> None:
    async with relays(postgres, named, 3) as stores, by_asyncpg(postgres.url) as caller:
        first = await stores[0].create_handle_awaited(caller.connection, handle("h1"))
        others = asyncio.gather(
            stores[1].create_handle(handle("h1", timeout=5)), stores[2].create_handle(handle("h2", timeout=5))
        )
        for store in stores[1:]:
            pid = await pid_of(store)
            await waits_for_lock(postgres, pid)
        await caller.commit()
        assert await others == [first, first]


async def pid_of(store: PostgresStore) -> int:
    await until(lambda: store.connections.add.server_pid is not None)
    pid = store.connections.add.server_pid
    assert pid is not None
    return pid


# -- cost


@asynccontextmanager
async def counted(service: Service) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(service.url)
    transaction = connection.transaction()
    await transaction.start()
    yield connection
    await transaction.rollback()
    await connection.close()


async def call_relay(connection: Any, app: str, **fields: Any) -> int:
    """The number of rows of the outbox that are read meanwhile."""
    rows = (
        "SELECT coalesce(idx_tup_fetch, 0) + seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'event_outbox'"
    )
    before = await connection.fetchval(rows) or 0
    defaults = {"sent": [], "in_flight": [], "busy": [], "skip_topics": [], "limit": 100, "to_log": False}
    request = json.dumps({"app": app, "session": "r0", **defaults, **fields})
    row = await connection.fetchrow("SELECT * FROM onthedot.relay_v1($1)", request)
    assert row["alive"]
    after: int = await connection.fetchval(rows)
    return after - before


async def test_relay_reads_little_more_than_it_returns(postgres: Service, named: str) -> None:
    """However many events wait: in its buckets, in those of others, and in topics that it skips."""
    async with relays(postgres, named, 2) as stores:
        for start in range(0, 20_000, 1000):
            numbers = range(start, start + 1000)
            topics = (TOPIC, "slow.topic.events")
            await stores[0].publish([event(f"k{n}", topics[n % 2], event_id=f"{n:05}") for n in numbers])
        await turn(stores[0], limit=1)
        async with counted(postgres) as connection:
            assert await call_relay(connection, named, skip_topics=["slow.topic.events"]) < 300
            assert await call_relay(connection, named) < 600, "the first of both topics"
        await turn(stores[1], "r1", limit=1)
        await turn(stores[0], limit=1)
        first = await turn(stores[0], limit=500)
        assert {bucket_of(stored.event.key) for stored in first.events} == set(range(8))
        async with counted(postgres) as connection:
            fetched = await call_relay(connection, named, in_flight=seqs(first), skip_topics=["slow.topic.events"])
            assert fetched < 500 + 300


async def test_events_behind_a_failed_one_are_read_once(postgres: Service, named: str) -> None:
    async with relays(postgres, named, 1) as (store,):
        for start in range(0, 3_000, 1000):
            await store.publish([event("k", event_id=f"{n:05}") for n in range(start, start + 1000)])
        first = await turn(store, limit=1)
        await store.relay("r0", [], {seqs(first)[0]: "no"}, RelayRequest(500))
        async with counted(postgres) as connection:
            assert await call_relay(connection, named) < 10
        await store.amend_events(["00000"], "retry")
        assert ids(await turn(store, limit=1000)) == [f"{n:05}" for n in range(1000)]


async def test_event_that_is_set_aside_while_its_key_is_freed_is_sent(postgres: Service, named: str) -> None:
    async with relays(postgres, named, 1) as (store,):
        await store.publish([event("k", event_id="1")])
        await store.relay("r0", [], {seqs(await turn(store))[0]: "no"}, None)
        await store.publish([event("k", event_id="2")])
        connection = await asyncpg.connect(postgres.url)
        async with connection.transaction():
            await call_relay(connection, named)
            amend = asyncio.create_task(store.amend_events(["1"], "retry"))
            await waits_for_lock(postgres, await pid_of(store))
        await connection.close()
        assert await amend == ["1"]
        assert ids(await turn(store)) == ["1", "2"]


async def test_relay_does_not_wait_for_an_operator(postgres: Service, named: str) -> None:
    async with relays(postgres, named, 1) as (store,):
        await store.publish([event("k", event_id="1")])
        await store.relay("r0", [], {seqs(await turn(store))[0]: "no"}, None)
        await store.publish([event("k", event_id="2")])
        connection = await asyncpg.connect(postgres.url)
        request = json.dumps({"app": named, "ids": ["1"], "action": "retry"})
        async with connection.transaction():
            await connection.fetchrow("SELECT * FROM onthedot.amend_events_v1($1)", request)
            assert ids(await turn(store)) == []
        await connection.close()
        assert ids(await turn(store)) == ["1", "2"]


async def test_idle_relay_writes_nothing(postgres: Service, named: str) -> None:
    """So its transaction needs no commit record, and does not wait for the disk."""
    async with relays(postgres, named, 1) as (store,):
        await turn(store)
        async with counted(postgres) as connection:
            await call_relay(connection, named)
            assert await connection.fetchval("SELECT pg_current_xact_id_if_assigned()") is None


async def test_group_of_a_rare_topic_passes_over_a_long_log(postgres: Service, named: str) -> None:
    """Also over one whose beginning was purged."""
    async with relays(postgres, named, 1) as (store,):
        await turn(store)
        app = "(SELECT id FROM onthedot.app WHERE name = %s)"
        postgres.ask(f"UPDATE onthedot.event_bucket SET position = 5000000 WHERE app = {app}", named)
        await store.publish([event("a", event_id="1")])
        await turn(store, sent=seqs(await turn(store)))
        await store.heartbeat("reader", b"", LEASE)
        positions: dict[int, int] = {}
        found: list[str] = []
        for _ in range(2):
            page = await store.read_log("g", "reader", [TOPIC], positions, 100)
            positions = dict(page.buckets)
            found += [stored.event.id for stored in page.events]
        assert found == ["1"]


LOG = """WITH one AS (SELECT id FROM onthedot.app WHERE name = %s), events AS (
    INSERT INTO onthedot.event_outbox (seq, app, bucket, id, topic, key, type, version, aggregate_type, aggregate_id,
        retries, occurred_at, status, sent_at, position)
    SELECT nextval('onthedot.event_seq'), one.id, 0, 'old ' || n, 'other.topic.events', 'k', '', 1, '', '', 0, now(),
        'sent', 0, n
    FROM one, generate_series(1, 35000) AS n)
UPDATE onthedot.event_bucket SET position = 35000 FROM one WHERE app = one.id AND consumer_group = '' AND bucket = 0"""


async def test_subscription_to_a_rare_topic_reads_past_a_long_log(postgres: Service, named: str) -> None:
    async with relays(postgres, named, 1) as (store,):
        await turn(store)
        postgres.ask(LOG, named)
        await store.publish([event(key_in(0), event_id="1")])
        await turn(store, sent=seqs(await turn(store)))
        runtime = App(named, store=postgres.url).runtime
        bus = ComponentFactory(runtime.config, store, store, runtime.new_observer()).connection.bus
        subscription = await bus.subscribe("g", [TOPIC], on_revoked)
        (record,) = await subscription.read(10, timeout=SOON)
        assert record.offset == 35_001
        await subscription.close()


async def on_revoked(_partitions: object) -> None: ...


async def test_relay_polls_often_where_publishes_send_no_hint(postgres: Service, named: str) -> None:
    """50 ms, so a second is long enough even on a busy machine."""
    app = App(named, store=f"{postgres.url}?notify=0", events=Events(poll=3600))
    async with app.running(), by_asyncpg(postgres.url) as caller:
        new = Event("Shop.Order.Placed", {}, aggregate_id="1")
        await app.publish(new, connection=caller.connection)
        await caller.commit()
        store = app.runtime.store
        assert isinstance(store, PostgresStore)
        await until(lambda: was_sent(store, new.id))


async def was_sent(store: PostgresStore, event_id: str) -> bool:
    (stored,) = await store.find_events({"id": event_id}, 0, 1)
    return stored.status == "sent"


@pytest.mark.parametrize("kind", ["closed", "reaped"])
async def test_session_leaves_its_groups_with_its_end(postgres: Service, named: str, kind: str) -> None:
    async with relays(postgres, named, 2) as stores:
        await turn(stores[0])
        await stores[0].read_log("g", "r0", [TOPIC], {}, 10)
        if kind == "closed":
            await stores[0].close_session("r0")
        else:
            await stores[1].close_session("r0", crashed=True)
        state = await stores[1].outbox_state()
        assert state.owners == {}
        assert list((await turn(stores[1], "r1")).buckets) == ALL
        await stores[0].commit_positions("g", "r0", {0: 7})
        assert dict((await stores[1].outbox_state()).lag) == {"g": 0}
        members = (
            "SELECT session FROM onthedot.event_member AS m JOIN onthedot.app AS a ON a.id = m.app WHERE a.name = %s"
        )
        assert postgres.ask(members, named) == [("r1",)]
