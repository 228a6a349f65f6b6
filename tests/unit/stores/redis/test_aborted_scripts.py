"""A script that fails at its nth write is not rolled back: the next calls, or a repair, bring every task to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha1
from typing import Any

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreError
from onthedot.stores.contract import (
    ClaimRequest,
    Completed,
    Effects,
    Ended,
    FireRequest,
    Lease,
    Limit,
    Links,
    NewSignal,
    NewTask,
    Outcome,
    Policy,
    Requeued,
    Schedule,
    SlotPool,
    Suspended,
    TurnResult,
    Wait,
)
from onthedot.stores.redis import RedisStore
from onthedot.stores.redis.scripts import SCRIPTS, TEXTS, Script
from tests.support.services import valkey

MOST_WRITES = 20
KEEP = 10**9
CALL = "local call, pack, unpacked = redis.call, cmsgpack.pack, cmsgpack.unpack"
WRITES = "HSET HSETNX HDEL HINCRBY ZADD ZREM ZREMRANGEBYRANK SADD SREM DEL XADD"
ABORTING = """
local pack, unpacked, written, writes = cmsgpack.pack, cmsgpack.unpack, 0, {}
for name in ('%s'):gmatch('%%S+') do writes[name] = true end
local function call(command, ...)
  if writes[command] then written = written + 1 end
  if written == %d then error('aborted') end
  return redis.call(command, ...)
end
"""


@contextmanager
def aborted(verb: str, number: int) -> Iterator[None]:
    """The script of the verb fails instead of its nth write."""
    script = SCRIPTS[verb]
    assert CALL in script.text
    text = script.text.replace(CALL, ABORTING % (WRITES, number))
    broken = Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())
    SCRIPTS[verb] = broken
    TEXTS[broken.sha] = text
    try:
        yield
    finally:
        SCRIPTS[verb] = script
        del TEXTS[broken.sha]


class Life:
    """An app with tasks in all places: ready, scheduled, due, in lanes, parked, waiting, leased, failed."""

    def __init__(self, store: RedisStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.uuids: list[str] = []
        self.first = Session(store, "first")
        self.held: list[Lease] = []
        self.members: list[Lease] = []

    async def begin(self) -> None:
        await self.store.put_limits([Limit("a/k", cap=1)])
        await self.store.put_schedules([Schedule("s", b"rule", "digest", int(self.clock.now()))])
        await self.store.heartbeat("first", b"", 10**7)
        await self.add(*[NewTask(f"leased{number}", "a", b"") for number in range(3)])
        await self.add(NewTask("fails", "a", b"", links=Links("last", ("h",))))
        await self.add(*[NewTask(f"member{number}", "a", b"", links=Links("last", ("f",))) for number in range(2)])
        turn = await self.first.claim()
        assert turn.claim is not None
        leases = [Lease(task.uuid, turn.claim.fence, "first") for task in turn.claim.tasks]
        self.held = leases[:3]
        self.members = leases[4:]
        await self.store.turn("first", [Ended(leases[3], "failed", b"", KEEP)], None)
        await self.add(NewTask("last", "a", b"", links=Links("last", waits=Wait((("f", 2), ("g", 1))))))
        await self.add(NewTask("next", "a", b"", links=Links("last", waits=Wait((("f", 2),), 50_000))))
        await self.add(NewTask("signalled", "a", b"", links=Links(waits=Wait((("~s", 1),), 60_000))))
        await self.add(*[NewTask(f"lane{number}", "a", b"", lane="a/k") for number in range(3)])
        await self.add(*[NewTask(f"soon{number}", "a", b"", after=5) for number in range(2)])
        await self.first.claim(0)
        await self.add(NewTask("expires", "a", b"", after=5, policy=Policy(expires=1)))
        await self.add(NewTask("unique", "a", b"", unique="k"))
        await self.add(*[NewTask(f"ready{number}", "a", b"") for number in range(2)])
        self.clock.advance(10)

    async def add(self, *tasks: NewTask) -> None:
        await self.store.add(tasks)
        self.uuids += [task.uuid for task in tasks]

    async def end(self) -> None:
        """Another worker takes over; at last all tasks have ended, each leased once at a time."""
        self.clock.advance(1)
        for session in ("first", "other", "client"):
            await self.store.close_session(session, crashed=True)
        second = Session(self.store, "second")
        await self.store.heartbeat("second", b"", 10**8)
        await self.store.unplaced(requeue=True)
        for _ in range(12):
            self.clock.advance(10_000)
            await second.drain()
        assert await self.store.unplaced() == []
        found = await self.store.get(self.uuids)
        states = {uuid: record and record.state for uuid, record in zip(self.uuids, found, strict=True)}
        assert set(states.values()) <= {"succeeded", "failed", "cancelled"}, states


class Session:
    def __init__(self, store: RedisStore, name: str) -> None:
        self._store = store
        self._name = name
        self._number = 0

    async def claim(self, total: int = 100, outcomes: list[Outcome] | None = None, *, lost: int = 0) -> TurnResult:
        """lost: so many requests before it did not reach the store."""
        self._number += 1 + lost
        request = ClaimRequest(self._number, [SlotPool(total, {"a": total})], max_suspects=100)
        return await self._store.turn(self._name, outcomes or [], request)

    async def drain(self) -> None:
        turn = await self.claim()
        while turn.claim is not None and (turn.claim.tasks or turn.claim.chores):
            uuids = [task.uuid for task in (*turn.claim.tasks, *turn.claim.chores)]
            assert len(set(uuids)) == len(uuids), "leased twice"
            ends: list[Outcome] = [Completed(Lease(uuid, turn.claim.fence, self._name), b"", KEEP) for uuid in uuids]
            turn = await self.claim(outcomes=ends)
            lost = [uuid for uuid, verdict in zip(uuids, turn.verdicts, strict=True) if verdict != "ok"]
            assert lost == []


async def settle(life: Life) -> object:
    first, second, third = life.held
    return await life.first.claim(outcomes=[
        Completed(first, b"1", KEEP), Requeued(second, 0, counted=True, error=b"E"),
        Completed(third, b"", KEEP, effects=Effects([NewTask("child", "a", b"")])),
    ])  # fmt: skip


async def suspend(life: Life) -> object:
    child = NewTask("child", "a", b"", links=Links("last", ("g",)))
    return await life.store.turn("first", [Suspended(life.held[0], Wait((("g", 1),)), Effects((child,)))], None)


def ends_of_members(life: Life) -> list[Outcome]:
    return [Completed(lease, b"", KEEP) for lease in life.members]


VERBS: dict[str, tuple[str, Callable[[Life], Coroutine[Any, Any, object]]]] = {
    "add": ("add", lambda life: life.store.add([NewTask("new", "a", b""), NewTask("new2", "a", b"")])),
    "add with a lane": ("add", lambda life: life.store.add([NewTask("new", "a", b"", lane="a/k", unique="j")])),
    "add a waiting task": (
        "add",
        lambda life: life.store.add([NewTask("new", "a", b"", links=Links("last", waits=Wait((("f", 0),), 9)))]),
    ),
    "ends of members": ("turn", lambda life: life.store.turn("first", ends_of_members(life), None)),
    "ends of members, and the next": ("turn", lambda life: life.first.claim(outcomes=ends_of_members(life))),
    "suspend": ("turn", suspend),
    "signal": ("signal", lambda life: life.store.signal([NewSignal("~s", "1")])),
    "subscribe": ("subscribe", lambda life: life.store.subscribe("client", life.uuids)),
    "claim": ("turn", lambda life: life.first.claim()),
    "claim after a gap": ("turn", lambda life: life.first.claim(lost=1)),
    "settle": ("turn", settle),
    "reap": ("turn", lambda life: _reap(life)),
    "cancel": ("cancel", lambda life: life.store.cancel("client", life.uuids)),
    "revive": ("revive", lambda life: life.store.revive(["fails"])),
    "close": ("close_session", lambda life: life.store.close_session("first")),
    "crash": ("close_session", lambda life: life.store.close_session("first", crashed=True)),
    "heartbeat": ("heartbeat", lambda life: life.store.heartbeat("first", b"", 10**7)),
    "fire": ("fire", lambda life: _fire(life)),
    "purge": ("purge", lambda life: _purge(life)),
    "limits": ("put_limits", lambda life: life.store.put_limits([Limit("a/k", cap=5), Limit("a", cap=9)])),
}


async def _reap(life: Life) -> object:
    other = Session(life.store, "other")
    await life.store.heartbeat("other", b"", 10**9)
    life.clock.advance(10**8)
    return await other.claim()


async def _purge(life: Life) -> object:
    life.uuids.remove("fails")
    return await life.store.purge(100, 0)


async def _fire(life: Life) -> object:
    (schedule,) = await life.store.schedules()
    return await life.store.fire([FireRequest("s", schedule.rev, [NewTask("window", "a", b"")], 10**15)])


@asynccontextmanager
async def opened() -> AsyncIterator[Life]:
    clock = ManualClock()
    store = RedisStore(valkey.url(), clock, valkey.new_name())
    await store.open()
    try:
        life = Life(store, clock)
        await life.begin()
        yield life
    finally:
        await store.close()
        valkey.forget(store.prefix)


@pytest.mark.parametrize("name", VERBS)
async def test_every_task_ends_after_a_script_that_was_aborted(name: str) -> None:
    verb, call = VERBS[name]
    for number in range(1, MOST_WRITES + 1):
        async with opened() as life:
            with aborted(verb, number):
                try:
                    await call(life)
                except StoreError as error:
                    if "aborted" not in str(error):
                        raise
                else:
                    break  # it has fewer writes
            await life.end()
    assert number > 1
