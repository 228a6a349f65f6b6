"""The reply to each verb is swallowed once: the state is as after one execution, the repeat gets its documented answer.

On Redis and Postgres a proxy swallows the reply and the client repeats the call. In the memory store, whose replies
cannot be lost, the call is made twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal, NamedTuple

import pytest
from msgspec.structs import replace

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import (
    ClaimRequest,
    Completed,
    Effects,
    Ended,
    FireRequest,
    Lease,
    LeasedTasks,
    Limit,
    Links,
    NewSignal,
    NewTask,
    Note,
    Record,
    Schedule,
    SeriesEntry,
    SlotPool,
    Store,
    Suspended,
    Wait,
)
from onthedot.stores.memory import MemoryStore
from onthedot.stores.postgres import PostgresStore
from onthedot.stores.redis import RedisStore
from tests.contract.invariants import every
from tests.faults import LONG, scaled
from tests.faults.proxy import Proxy, proxy
from tests.faults.server_stores import SERVER_STORES, ServerStore
from tests.model.stored_subscriptions import stored_subscriptions
from tests.support.waits import until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600 if LONG else 120)]
LEASE = 10**9  # ms
PHASES = scaled(12, 100)  # replies of one call, at most


class Prepared(NamedTuple):
    """A store with a running task, pending ones, a failed one, one that can be purged, and a schedule that is due.

    The ends of the first two count."""

    store: Store
    clock: ManualClock
    lease: Lease


class Verb(NamedTuple):
    call: Callable[[Prepared], Awaitable[Any]]
    first: Any
    repeat: Any


def plain(answer: Any) -> Any:
    """The part of an answer that is the same in all stores: no fences, no times."""
    match answer:
        case LeasedTasks():
            return [record.uuid for record in answer.tasks]
        case list() | tuple():
            return [plain(each) for each in answer]
        case Record():
            return answer.uuid
        case _:
            return getattr(answer, "alive", None) if hasattr(answer, "cancel_requests") else answer


TURN = ClaimRequest(2, [SlotPool(1, {"b": 1})])


async def turn(it: Prepared) -> Any:
    result = await it.store.turn("w", [Completed(it.lease, b"1")], TURN)
    assert result.claim is not None
    return [*result.verdicts, *(record.uuid for record in result.claim.tasks)]


async def settle(it: Prepared) -> Any:
    result = await it.store.turn("w", [Ended(it.lease, "failed", b"{}")], None)
    return list(result.verdicts)


async def suspend(it: Prepared, request: ClaimRequest | None) -> Any:
    effects = Effects((NewTask("spawned", "c", b"", links=Links(None, ("f",))),))
    result = await it.store.turn("w", [Suspended(it.lease, Wait((("~s", 1), ("f", 1))), effects)], request)
    return [*result.verdicts, *(record.uuid for record in (result.claim.tasks if result.claim else ()))]


async def add_flow(it: Prepared) -> Any:
    last = Links("last", ("f!",), Wait((("f", 1),), requires="success"))
    return await added(
        it, NewTask("member", "c", b"", links=Links("last", ("f",))), NewTask("last", "c", b"", links=last)
    )


async def note_progress(it: Prepared, *kinds: tuple[Literal["progress", "step", "item"], str]) -> Any:
    return await it.store.note([Note(it.lease, kind, name, b"1") for kind, name in kinds])


async def added(it: Prepared, *new: NewTask) -> Any:
    return [(each.uuid, each.fresh) for each in await it.store.add(new)]


async def adopt(it: Prepared) -> Any:
    (record,) = await it.store.get(["pending1"])
    assert record is not None
    return [(each.uuid, each.fresh) for each in await it.store.adopt([replace(record, uuid="moved")])]


async def put_schedule(it: Prepared) -> Any:
    return list(await it.store.put_schedules([Schedule("s", b"other", "digest", 5, rev=1)]))


VERBS: dict[str, Verb] = {
    "add": Verb(lambda it: added(it, NewTask("new", "c", b"")), [["new", True]], [["new", False]]),
    "turn": Verb(turn, ["ok", "pending1"], ["repeat", "pending1"]),
    "settle": Verb(settle, ["ok"], ["repeat"]),
    "suspend": Verb(lambda it: suspend(it, None), ["ok"], ["repeat"]),
    "suspend and claim": Verb(lambda it: suspend(it, TURN), ["ok", "pending1"], ["repeat", "pending1"]),
    "add with links": Verb(add_flow, [["member", True], ["last", True]], [["member", False], ["last", False]]),
    "signal": Verb(lambda it: it.store.signal([NewSignal("~s", "1", b"x")]), [True], [False]),
    "subscribe": Verb(lambda it: it.store.subscribe("reader", ["runs", "pending1"]), None, None),
    "note": Verb(lambda it: note_progress(it, ("progress", "")), [], []),
    "note of a step and an item": Verb(lambda it: note_progress(it, ("step", "charge#1"), ("item", "1/0")), [], []),
    "cancel": Verb(lambda it: it.store.cancel("client", ["pending1"]), ["pending1"], []),  # leased: left out
    "lift": Verb(lambda it: it.store.lift("mover", ["pending1"]), ["pending1"], []),
    "adopt": Verb(adopt, [["moved", True]], [["moved", False]]),
    "revive": Verb(lambda it: it.store.revive(["failed"]), ["failed"], ["failed"]),
    "heartbeat": Verb(lambda it: it.store.heartbeat("w", b"info", LEASE), True, True),
    "new heartbeat": Verb(lambda it: it.store.heartbeat("w2", b"info", LEASE), True, True),
    "close_session": Verb(lambda it: it.store.close_session("w"), None, None),
    "close_session, crashed": Verb(lambda it: it.store.close_session("w", crashed=True), None, None),
    "put_schedules": Verb(put_schedule, [True], [False]),
    "put_limits": Verb(lambda it: it.store.put_limits([Limit("a", cap=3)]), True, True),
    "put_limits, compared": Verb(
        lambda it: it.store.put_limits([Limit("c", cap=3)], replaces=[Limit("c")]), True, False
    ),
    "fire": Verb(
        lambda it: it.store.fire([FireRequest("s", 1, (NewTask("window", "c", b""),), 10**15)]), [True], [False]
    ),
    "delete_schedules": Verb(lambda it: it.store.delete_schedules(["s"]), None, None),
    "write_series": Verb(lambda it: it.store.write_series([SeriesEntry("audit", 1, "ann", b"a")]), True, True),
    "purge": Verb(lambda it: it.store.purge(100), 1, 0),
}  # the reads of `Inspect` change nothing


async def prepare(store: Store, clock: ManualClock) -> Prepared:
    await store.open()
    await store.tally()  # opens the connection for reads
    counted = [
        NewTask(uuid, "a", b"", links=Links(None, (counter,))) for uuid, counter in (("runs", "f"), ("failed", "g"))
    ]
    await store.add([*counted, NewTask("old", "a", b"")])
    await store.heartbeat("w", b"info", LEASE)
    claimed = (await store.turn("w", [], ClaimRequest(1, [SlotPool(3, {"a": 3})]))).claim
    assert claimed is not None
    running, failed, old = (Lease(uuid, claimed.fence, "w") for uuid in ("runs", "failed", "old"))
    await store.turn("w", [Ended(failed, "failed", b"{}"), Completed(old, keep=1)], None)
    await store.add([NewTask(uuid, "b", b"") for uuid in ("pending1", "pending2")])
    await store.put_schedules([Schedule("s", b"rule", "digest", int(clock.now()))])
    clock.advance(5)
    return Prepared(store, clock, running)


async def state(store: Store) -> Any:
    """Everything that readers see. Fences and the order of adding are common to all apps of a server."""
    records = [
        replace(record, seq=0, history=replace(record.history, settled_fence=min(record.history.settled_fence, 1)))
        for record in await every(store)
    ]
    return {
        "records": records,
        "tally": {key: number for key, number in (await store.tally()).items() if number},
        "schedules": list(await store.schedules()),
        "limits": [limit for limit in await store.limits() if limit != Limit(limit.name)],
        "sessions": dict(await store.sessions()),
        "notes": [(note.kind, note.name, note.data) for _, note in await store.notes("runs", 0, 10)],
        "counters": list(await store.counters(["f", "f!", "g", "~s"])),
        "signals": list((await store.signals("~s", 0, 10)).signals),
    }


@pytest.mark.parametrize("name", VERBS)
async def test_repeated_verb_has_one_effect(name: str) -> None:
    """In the memory store."""
    verb = VERBS[name]
    it = await prepare(MemoryStore(clock := ManualClock()), clock)
    assert plain(await verb.call(it)) == verb.first
    once = await state(it.store), stored_subscriptions(it.store)
    assert plain(await verb.call(it)) == verb.repeat
    assert (await state(it.store), stored_subscriptions(it.store)) == once
    await it.store.close()


@pytest.fixture(scope="module", params=SERVER_STORES)
def link(request: pytest.FixtureRequest) -> Any:
    with SERVER_STORES[request.param]() as server_store, proxy(server_store.port) as link:
        yield server_store, link


@contextlib.asynccontextmanager
async def opened(server_store: ServerStore, link: Proxy, app: str) -> AsyncIterator[Prepared]:
    url = server_store.url(30, link.port)
    clock = ManualClock()
    store: Store = RedisStore(url, clock, app) if server_store.name == "redis" else PostgresStore(url, clock, app)
    try:
        it = await prepare(store, clock)
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
        assert plain(await verb.call(it)) == verb.first
        once = await state(it.store), server_store.subscribers(f"{name}-undisturbed")
    answers: list[Any] = []
    phase = 0
    for attempt in range(PHASES):
        async with opened(server_store, way, f"{name}-{attempt}") as it:
            way.swallow_reply(after=phase)
            answer = plain(await verb.call(it))
            if not way.stop_swallowing():
                answers.append(answer)
                assert answer in (verb.first, verb.repeat)
                assert (await state(it.store), server_store.subscribers(f"{name}-{attempt}")) == once
                phase += 1
            elif verb.repeat in answers:
                break
            else:  # two replies came as one packet this time
                phase = max(0, phase - 1)
    assert answers, "no reply was swallowed"
    assert verb.repeat in answers, "the reply after the effect was not swallowed"
