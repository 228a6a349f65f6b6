"""The keys of an app are those of docs/reference/redis.md, and none has a time to live."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import redis

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import (
    ClaimRequest,
    Completed,
    Ended,
    FireRequest,
    HandoffOffer,
    Lease,
    Limit,
    Links,
    NewSignal,
    NewTask,
    Note,
    Policy,
    Schedule,
    SeriesEntry,
    SlotPool,
    Wait,
)
from onthedot.stores.redis import RedisStore
from onthedot.stores.redis.uuid_format import pack_uuid
from tests.support.services import valkey

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "redis.md"
STAYS = {
    "sequences", "changes", "workers", "session_leases", "limits", "dead_sessions", "ids", "history", "leased",
}  # fmt: skip


def documented() -> set[str]:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    first = [row.split("|")[1] for row in rows if row.count("|") == 6]
    return {name.partition("<")[0] for cell in first for name in re.findall(r"`([^`]+)`", cell)}


def kinds(client: redis.Redis, prefix: str) -> set[str]:
    keys = [key.decode().removeprefix(prefix) for key in client.scan_iter(f"{prefix}*") if _plain(key)]
    return {re.sub(r":.*", ":", key) for key in keys}


def _plain(key: bytes) -> bool:
    return key.isascii()


async def test_keys_are_those_of_the_documentation() -> None:
    clock = ManualClock()
    store = RedisStore(valkey.url(), clock, valkey.new_name())
    await store.open()
    seen: set[str] = set()
    with redis.Redis.from_url(valkey.url()) as client:

        def look() -> None:
            nonlocal seen
            seen |= kinds(client, store.prefix)

        await _life(store, clock, client, look)
        assert seen <= documented()
        assert documented() <= seen, "documented, and never seen"
        assert all(client.ttl(key) == -1 for key in client.scan_iter(f"{store.prefix}*"))
        clock.advance(3 * 10**9)
        await store.heartbeat("w", b"", 10**10)
        await store.purge(1000, 0)
        await store.purge(1000, 0)
        look()
        assert kinds(client, store.prefix) - {"session:"} <= STAYS, "something is left of what is over"
    await store.close()
    valkey.forget(store.prefix)


async def _life(store: RedisStore, clock: ManualClock, client: redis.Redis, look: Callable[[], None]) -> None:
    """Uses every kind of key, and calls `look` in between."""
    await store.heartbeat("w", b"info", 10**6)
    await store.put_schedules([Schedule("s", b"rule", "v", int(clock.now()))])
    await store.put_limits([Limit("a/*", cap=1, rate=1.0, burst=2), Limit("b/*", rate=1.0)])
    await store.add([NewTask(f"lane{number}", "a", b"", lane="a/k") for number in range(4)])
    await store.add([NewTask("later", "a", b"", after=500), NewTask("once", "a", b"", unique="k")])
    await store.add([NewTask("for", "a", b"", unique="j", policy=Policy(unique_for=100))])
    await store.add([NewTask("old", "b", b"", policy=Policy(expires=1))])
    await store.add([NewTask("bad", "c", b"", policy=Policy(max_crashes=1))])
    await store.add([NewTask(f"slow{number}", "a", b"", lane="b/k") for number in range(2)])
    await store.add([NewTask("damaged", "a", b"", after=1)])
    client.hset(f"{store.prefix}history", client.hget(f"{store.prefix}ids", pack_uuid("damaged")), b"x")
    look()
    clock.advance(1)
    turn = await store.turn("w", [], ClaimRequest(1, []))
    look()
    assert turn.claim is not None
    chores = turn.claim.chores
    fence = turn.claim.fence
    turn = await store.turn("w", [], ClaimRequest(2, [SlotPool(50, {"a": 50})]))
    assert turn.claim is not None
    first, *rest = [Lease(record.uuid, turn.claim.fence, "w") for record in turn.claim.tasks]
    await store.note([Note(first, "progress", "", b"1")])
    await store.cancel("client", [first.uuid])
    look()
    await store.fire([FireRequest("s", (await store.schedules())[0].rev, (), None)])
    ends = [Ended(Lease(record.uuid, fence, "w"), "cancelled", b"expired") for record in chores]
    await store.turn(
        "w", [*ends, Completed(first, b"x", keep_result=10), *(Completed(lease, keep=0) for lease in rest)], None
    )
    look()
    await store.heartbeat("idle", b"", 10**6)
    await store.turn("idle", [], ClaimRequest(1, [], offer=HandoffOffer({"d": 1}, 1000)))
    look()
    await store.close_session("idle")
    for number in range(3, 20):
        clock.advance(2000)
        turn = await store.turn("w", [], ClaimRequest(number, [SlotPool(50, {"a": 50})]))
        assert turn.claim is not None
        await store.turn("w", [Completed(Lease(r.uuid, turn.claim.fence, "w")) for r in turn.claim.tasks], None)
    look()
    await store.delete_schedules(["s"])
    await store.heartbeat("dead", b"", 1000)
    await store.turn("dead", [], ClaimRequest(1, [SlotPool(1, {"c": 1})]))
    await store.close_session("dead", crashed=True)
    look()
    await _flow(store, look)
    turn = await store.turn("w", [], ClaimRequest(20, []))
    assert turn.claim is not None
    await store.turn("w", [Completed(Lease(r.uuid, turn.claim.fence, "w")) for r in turn.claim.chores], None)
    await store.close_session("client")


async def _flow(store: RedisStore, look: Callable[[], None]) -> None:
    """A flow of two tasks whose first one fails, a signal, and a client that subscribes."""
    member = Links("last", ("f",))
    waits = Wait((("f", 1), ("g", 1)), requires="success")
    await store.heartbeat("flow", b"", 10**6)
    await store.add(
        [NewTask("first", "f", b"", links=member), NewTask("last", "f", b"", links=Links("last", waits=waits))]
    )
    await store.signal([NewSignal("~s", "1", b"x", 86_400_000), NewSignal("~s", "2", b"y", 86_400_000)])
    await store.write_series([SeriesEntry("minutes", 1, "w", b"x")])
    assert len((await store.signals("~s", 0, 10)).signals) == 2
    await store.subscribe("client", ["first", "last"])
    assert len((await store.find({"flow": "last"}, None, 10)).rows) == 2
    assert len((await store.find({"waits_for": "g"}, None, 10)).rows) == 1
    look()
    turn = await store.turn("flow", [], ClaimRequest(1, [SlotPool(5, {"f": 5})]))
    assert turn.claim is not None
    first = Lease("first", turn.claim.fence, "flow")
    await store.note([Note(first, "item", "1/0", b"[]")])
    assert len(await store.notes("first", 0, 10, "item")) == 1
    await store.turn("flow", [Ended(first, "failed", b"")], None)
    look()
    assert [counter.failed for counter in await store.counters(["f", "g"])] == [1, 0]
    turn = await store.turn("flow", [], ClaimRequest(2, []))
    assert turn.claim is not None
    assert [(chore.uuid, chore.history.reason) for chore in turn.claim.chores] == [("last", "upstream")]
    await store.turn("flow", [Ended(Lease("last", turn.claim.fence, "flow"), "cancelled", b"")], None)
    await store.close_session("flow")
