"""The reply to each verb of events is swallowed once: the state is as after one execution, and so is a repeat's.

On Postgres a proxy swallows the reply and the client repeats the call. In the memory store the call is made twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from onthedot.clock.manual import ManualClock
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import NewTask, OutboxEvent, RelayRequest, Store
from onthedot.stores.memory import MemoryStore
from onthedot.stores.postgres import PostgresStore
from tests.contract.event_steps import TOPIC, event, handle, outbox
from tests.contract.test_resume_handles import arrival
from tests.faults import LONG, scaled
from tests.faults.proxy import Proxy, proxy
from tests.faults.server_stores import SERVER_STORES, ServerStore
from tests.support.waits import until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600 if LONG else 120)]
LEASE = 10**9  # ms
PHASES = scaled(12, 100)  # replies of one call, at most


class Prepared(NamedTuple):
    """A store whose relay holds two events, with one in the log, a failed one, and a handle that can be complete."""

    store: Store
    outbox: Outbox
    held: list[int]


class Verb(NamedTuple):
    call: Callable[[Prepared], Awaitable[Any]]
    first: Any
    repeat: Any


async def relay(it: Prepared) -> Any:
    result = await it.outbox.relay("r", it.held[:1], {it.held[1]: "no"}, RelayRequest(), to_log=True)
    return (result.alive, _ids(result.events), len(result.buckets))


async def read_log(it: Prepared) -> Any:
    return _ids((await it.outbox.read_log("g", "r", [TOPIC], {}, 100)).events)


async def complete(it: Prepared) -> Any:
    return [each.status for each in await it.outbox.complete_handles(["c1"])]


async def resume(it: Prepared) -> Any:
    await it.outbox.complete_handles(["c1"])
    return [each.status for each in await it.outbox.complete_handles(["c1"], ["h1"])]


async def create(it: Prepared) -> Any:
    created = await it.outbox.create_handle(handle("h2", "c2"), [NewTask("u1", "a", b"")])
    return (created.id, created.status)


async def commit(it: Prepared) -> Any:
    page = await it.outbox.read_log("g", "r", [TOPIC], {}, 100)
    return await it.outbox.commit_positions("g", "r", page.buckets)


def _ids(events: Any) -> list[str]:
    return [stored.event.id for stored in events]


VERBS: dict[str, Verb] = {
    "publish": Verb(lambda it: it.outbox.publish([event(event_id="new")]), [True], [False]),
    "relay": Verb(relay, (True, ["later"], 16), (True, ["later"], 16)),
    "read_log": Verb(read_log, ["logged"], ["logged"]),
    "commit_positions": Verb(commit, None, None),
    "amend_events": Verb(lambda it: it.outbox.amend_events(["failed"], "retry"), ["failed"], []),
    "record_arrivals": Verb(lambda it: it.outbox.record_arrivals([arrival("2"), arrival("1")]), None, None),
    "complete_handles": Verb(complete, ["complete"], ["complete"]),
    "complete_handles, resumed": Verb(resume, [], []),
    "create_handle": Verb(create, ("h2", "pending"), ("h2", "pending")),
    "purge_events": Verb(lambda it: it.outbox.purge_events(9, keep_sent=0, keep_arrivals=0), 1, 0),
}


async def prepare(store: Store) -> Prepared:
    await store.open()
    verbs = outbox(store)
    await store.tally()  # opens the connection for reads
    await store.heartbeat("r", b"info", LEASE)
    await verbs.publish([event("a", event_id="logged"), event("b", event_id="failed")])
    first = await verbs.relay("r", [], {}, RelayRequest())
    await verbs.relay("r", [first.events[0].seq], {first.events[1].seq: "no"}, None, to_log=True)
    await verbs.publish([event("c", event_id="held 1"), event("d", event_id="held 2"), event("e", event_id="later")])
    held = [stored.seq for stored in (await verbs.relay("r", [], {}, RelayRequest(2))).events]
    await verbs.create_handle(handle("h1", "c1"))
    await verbs.record_arrivals([arrival("1")])
    return Prepared(store, verbs, held)


async def state(it: Prepared) -> Any:
    """Everything that readers see. The numbers of events are common to all apps of a server."""
    events: list[OutboxEvent] = [replace(each, seq=0) for each in await it.outbox.find_events({}, 0, 100)]
    return {
        "events": events,
        "outbox": await it.outbox.outbox_state(),
        "handles": list(await it.outbox.handles(["c1", "c2"])),
        "arrivals": list(await it.outbox.arrivals("c1")),
        "tally": {key: number for key, number in (await it.store.tally()).items() if number},
    }


@pytest.mark.parametrize("name", VERBS)
async def test_repeated_verb_has_one_effect(name: str) -> None:
    """In the memory store."""
    verb = VERBS[name]
    it = await prepare(MemoryStore(ManualClock()))
    assert await verb.call(it) == verb.first
    once = await state(it)
    assert await verb.call(it) == verb.repeat
    assert await state(it) == once
    await it.store.close()


@pytest.fixture(scope="module")
def link() -> Iterator[tuple[ServerStore, Proxy]]:
    with SERVER_STORES["postgres"]() as server_store, proxy(server_store.port) as link:
        yield server_store, link


@contextlib.asynccontextmanager
async def opened(server_store: ServerStore, link: Proxy, app: str) -> AsyncIterator[Prepared]:
    store = PostgresStore(server_store.url(30, link.port), ManualClock(), app)
    try:
        it = await prepare(store)
        await until(lambda: link.quiet_for() > 0.05)  # hints follow the replies of calls
        yield it
    finally:
        await store.close()


@pytest.mark.parametrize("name", VERBS)
async def test_verb_whose_reply_is_swallowed_has_one_effect(link: tuple[ServerStore, Proxy], name: str) -> None:
    """A call may consist of several replies, of which each is swallowed once: only the last one follows the effect."""
    server_store, way = link
    verb = VERBS[name]
    async with opened(server_store, way, f"{name}-undisturbed") as it:
        assert await verb.call(it) == verb.first
        once = await state(it)
    answers: list[Any] = []
    phase = 0
    for attempt in range(PHASES):
        async with opened(server_store, way, f"{name}-{attempt}") as it:
            way.swallow_reply(after=phase)
            answer = await verb.call(it)
            if not way.stop_swallowing():
                answers.append(answer)
                assert answer in (verb.first, verb.repeat)
                assert await state(it) == once
                phase += 1
            elif verb.repeat in answers:
                break
            else:  # two replies came as one packet this time
                phase = max(0, phase - 1)
    assert answers, "no reply was swallowed"
    assert verb.repeat in answers, "the reply after the effect was not swallowed"
