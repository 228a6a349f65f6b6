"""The keys of an app are those of the documentation, and none has a time to live."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import redis

from onthedot.clock.clock import ManualClock
from onthedot.stores.contract import Ask, Done, Ended, Fire, Lease, Limit, NewTask, Note, Policy, Pool, Schedule
from onthedot.stores.redis import RedisStore
from tests.support.services import valkey

PAGE = Path(__file__).parents[4] / "docs" / "redis.md"
STAYS = {"count", "changes", "workers", "leases", "limits", "graves", "ids", "past", "held"}


def documented() -> set[str]:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    first = [row.split("|")[1] for row in rows if row.count("|") == 6]
    return {name.partition("<")[0] for cell in first for name in re.findall(r"`([^`]+)`", cell)}


def kinds(client: redis.Redis, prefix: str) -> set[str]:
    keys = [key.decode().removeprefix(prefix) for key in client.scan_iter(f"{prefix}*") if _plain(key)]
    return {re.sub(r":.*", ":", key) for key in keys}


def _plain(key: bytes) -> bool:
    return key.isascii()


async def test_the_keys_are_those_of_the_documentation() -> None:
    clock = ManualClock()
    store = RedisStore(valkey.url(), clock, valkey.new_name())
    await store.open()
    seen: set[str] = set()
    with redis.Redis.from_url(valkey.url()) as client:

        def look() -> None:
            nonlocal seen
            seen |= kinds(client, store.prefix)

        await _life(store, clock, look)
        assert seen <= documented()
        assert documented() <= seen, "documented, and never seen"
        assert all(client.ttl(key) == -1 for key in client.scan_iter(f"{store.prefix}*"))
        clock.advance(10**9)
        await store.beat("w", b"", 10**10)
        await store.purge(1000, 0)
        await store.purge(1000, 0)
        look()
        assert kinds(client, store.prefix) - {"session:"} <= STAYS, "something is left of what is over"
    await store.shut()
    valkey.forget(store.prefix)


async def _life(store: RedisStore, clock: ManualClock, look: Callable[[], None]) -> None:
    """A bit of everything, looked at in between."""
    await store.beat("w", b"info", 10**6)
    await store.put(
        [Schedule("s", b"rule", "v", int(clock.now()))],
        [Limit("a/*", cap=1, rate=1.0, burst=2), Limit("b/*", rate=1.0)],
    )
    await store.add([NewTask(f"lane{number}", "a", b"", lane="a/k") for number in range(4)])
    await store.add([NewTask("later", "a", b"", after=500), NewTask("once", "a", b"", unique="k")])
    await store.add([NewTask("for", "a", b"", unique="j", policy=Policy(unique_for=100))])
    await store.add([NewTask("old", "b", b"", policy=Policy(expires=1))])
    await store.add([NewTask("bad", "c", b"", policy=Policy(max_crashes=1))])
    await store.add([NewTask(f"slow{number}", "a", b"", lane="b/k") for number in range(2)])
    look()
    clock.advance(1)
    turn = await store.turn("w", [], Ask(1, []))
    look()
    assert turn.claimed is not None
    chores, fence = turn.claimed.chores, turn.claimed.fence
    turn = await store.turn("w", [], Ask(2, [Pool(50, {"a": 50})]))
    assert turn.claimed is not None
    first, *rest = [Lease(record.uuid, turn.claimed.fence, "w") for record in turn.claimed.tasks]
    await store.note([Note(first, "progress", "", b"1")])
    await store.cancel("client", [first.uuid])
    look()
    await store.fire([Fire("s", (await store.state())[0][0].rev, (), None)])
    ends = [Ended(Lease(record.uuid, fence, "w"), "cancelled", b"expired") for record in chores]
    await store.turn("w", [*ends, Done(first, b"x", keep_result=10), *(Done(lease) for lease in rest)], None)
    look()
    await store.beat("idle", b"", 10**6)
    await store.turn("idle", [], Ask(1, [], waits={"d": 1}, waits_for=1000))
    look()
    await store.close("idle")
    for number in range(3, 20):
        clock.advance(2000)
        turn = await store.turn("w", [], Ask(number, [Pool(50, {"a": 50})]))
        assert turn.claimed is not None
        await store.turn("w", [Done(Lease(r.uuid, turn.claimed.fence, "w")) for r in turn.claimed.tasks], None)
    look()
    await store.drop(["s"])
    await store.beat("dead", b"", 1000)
    await store.turn("dead", [], Ask(1, [Pool(1, {"c": 1})]))
    await store.beat("dead", b"", 0)
    look()
    turn = await store.turn("w", [], Ask(20, []))
    assert turn.claimed is not None
    await store.turn("w", [Done(Lease(r.uuid, turn.claimed.fence, "w")) for r in turn.claimed.chores], None)
    await store.close("client")
