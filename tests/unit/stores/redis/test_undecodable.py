"""Records that cannot be read: each ends alone, wherever it is, and the others go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import redis

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import (
    ClaimRequest,
    Completed,
    Ended,
    Lease,
    Limit,
    NewTask,
    Outcome,
    Policy,
    Requeued,
    Schedule,
    SlotPool,
)
from onthedot.stores.redis import RedisStore
from onthedot.stores.redis.policy_format import known_policies
from onthedot.stores.redis.uuid_format import pack_uuid
from tests.support.services import valkey

POLICY = Policy(boost=7)
PLACES = {
    "ready": NewTask("bad", "a", b"body", policy=POLICY),
    "expiring": NewTask("bad", "a", b"body", policy=Policy(boost=7, expires=10**9)),
    "scheduled": NewTask("bad", "a", b"body", after=500, policy=POLICY),
    "in a lane": NewTask("bad", "a", b"body", lane="a/k", policy=POLICY),
    "parked": NewTask("bad", "a", b"body", lane="a/full", policy=POLICY),
    "unique": NewTask("bad", "a", b"body", unique="key", policy=POLICY),
    "requeued": NewTask("bad", "a", b"body", policy=POLICY),
    "leased": NewTask("bad", "a", b"body", policy=POLICY),
}


class Stored:
    """The data that the server has of a task, and its damage."""

    def __init__(self, prefix: str, client: redis.Redis) -> None:
        self._prefix = prefix
        self._client: Any = client
        self.seq: bytes = self._client.hget(f"{prefix}ids", pack_uuid("bad"))
        self.task: bytes = self._client.hget(f"{prefix}task", self.seq)
        self.uuid_at = 16 + int.from_bytes(self.task[14:16])
        self._digest = msgspec.msgpack.decode(self.task[16 : self.uuid_at])[0]

    def damage(self, kind: str) -> None:
        match kind:
            case "policy missing":
                self._refer_to(None)
            case "policy without form":
                self._refer_to("not a policy")
            case "policy with a wrong type":
                self._refer_to('{"s":"a","b":"x","m":[]}')
            case "policy with a wrong type for Python":
                self._refer_to('{"s":"a","t":5}')
            case "history without form":
                self._client.hset(f"{self._prefix}history", self.seq, b"\0\x10\0\0\0\0" + b"\xff" * 16)
            case "history cut off":
                self._client.hset(f"{self._prefix}history", self.seq, b"\0\x10\0")
            case "head without form":
                self._write(self.task[:16] + b"\xc1" * (self.uuid_at - 16) + self.task[self.uuid_at :])
            case "uuid cut off":
                self._write(self.task[: self.uuid_at + 2])
            case "head cut off":
                self._write(self.task[:18])
            case _:
                self._write(b"")

    def _refer_to(self, text: str | None) -> None:
        other = "?" * len(self._digest)
        if text is not None:
            self._client.hset(f"{self._prefix}policies", other, text)
        self._client.hincrby(f"{self._prefix}policy_uses", other, 1)
        self._write(self.task.replace(self._digest.encode(), other.encode(), 1))

    def _write(self, task: bytes) -> None:
        self._client.hset(f"{self._prefix}task", self.seq, task)


NAMED = (
    "policy missing",
    "policy without form",
    "policy with a wrong type",
    "policy with a wrong type for Python",
    "history without form",
    "history cut off",
    "head without form",
)
WITHOUT_HEAD = ("head without form", "head cut off", "empty")
UNNAMED = ("uuid cut off", "head cut off", "empty")


class Worker:
    def __init__(self, store: RedisStore, name: str) -> None:
        self._store = store
        self._name = name
        self._number = 0
        self.chores: dict[str, str] = {}

    async def turn(self, outcomes: list[Outcome], total: int = 100) -> list[Outcome]:
        """Returns the outcomes of the tasks that it got."""
        self._number += 1
        request = ClaimRequest(self._number, [SlotPool(total, {"a": total})])
        turn = await self._store.turn(self._name, outcomes, request)
        assert set(turn.verdicts) <= {"ok"}
        assert turn.claim is not None
        self.chores |= {record.uuid: record.history.reason for record in turn.claim.chores}
        leases = [Lease(task.uuid, turn.claim.fence, self._name) for task in turn.claim.tasks]
        chores = [Lease(task.uuid, turn.claim.fence, self._name) for task in turn.claim.chores]
        runs: list[Outcome] = [Completed(lease, b"", 10**6) for lease in leases]
        return [*runs, *[Ended(lease, "failed", b"", 10**6) for lease in chores]]

    async def drain(self) -> None:
        outcomes: list[Outcome] = []
        for _ in range(6):
            outcomes = await self.turn(outcomes)
        assert outcomes == []


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey.url()) as client:
        yield client


@asynccontextmanager
async def opened(clock: ManualClock) -> AsyncIterator[RedisStore]:
    store = RedisStore(valkey.url(), clock, valkey.new_name())
    await store.open()
    await store.heartbeat("first", b"", 10**9)
    await store.heartbeat("second", b"", 10**9)
    try:
        yield store
    finally:
        await store.close()
        valkey.forget(store.prefix)


OTHERS = [*[f"t{number}" for number in range(3)], *[f"l{number}" for number in range(3)]]


async def place(store: RedisStore, where: str) -> None:
    """Puts the task there, between others."""
    first = Worker(store, "first")
    await store.put_limits([Limit("a/full", 0)])
    ready = [NewTask(uuid, "a", b"", policy=POLICY) for uuid in OTHERS[:3]]
    later = [NewTask(uuid, "a", b"", after=500, policy=POLICY) for uuid in OTHERS[3:]]
    await store.add([*ready, PLACES[where], *later])
    match where:
        case "in a lane" | "parked":
            await first.turn([], total=0)
        case "leased":
            await first.turn([], total=4)
        case "requeued":
            outcomes = await first.turn([], total=4)
            await first.turn([Requeued(each.lease, 10, counted=True, error=b"E") for each in outcomes], total=0)


PLACE_KEYS = ("ready:", "suspect:", "parked", "chores", "claim", "lane:", "alarms")


def left_over(store: RedisStore, client: redis.Redis) -> set[str]:
    names = {key.decode().removeprefix(store.prefix) for key in client.scan_iter(f"{store.prefix}*")}
    return {
        name for name in names if name.startswith(("ready:", "suspect:", "parked", "chores", "claim", "lane:", "al"))
    }


@pytest.mark.parametrize("damage", [*NAMED, *UNNAMED])
@pytest.mark.parametrize("where", PLACES)
async def test_damaged_record_ends_alone(clock: ManualClock, client: redis.Redis, where: str, damage: str) -> None:
    async with opened(clock) as store:
        await place(store, where)
        stored = Stored(store.prefix, client)
        stored.damage(damage)
        known_policies.clear()  # as in another process
        await store.get(["bad", *OTHERS])
        await store.find({}, None, 100)
        await store.position("bad")
        await store.close_session("first", crashed=True)
        clock.advance(1000)
        await store.put_limits([Limit("a/full", 5)])
        worker = Worker(store, "second")
        await worker.drain()
        bad, *others = await store.get(["bad", *OTHERS])
        assert [record.state for record in others if record is not None] == ["succeeded"] * 6
        if damage in UNNAMED:
            assert bad is None
            assert client.hexists(f"{store.prefix}undecodable", stored.seq)
            assert worker.chores == {}
        else:
            assert bad is not None
            assert bad.state == "failed"
            assert worker.chores == {"bad": "undecodable"}
        assert sum(number for (_, state), number in (await store.tally()).items() if state == "failed") == 1
        if where != "expiring":  # its alarm is dropped at its time, which cannot be read
            lost_lane = {"lane:a/k"} if where == "in a lane" and damage in WITHOUT_HEAD else set()
            assert left_over(store, client) == lost_lane
        await store.changes("0", 1000, resolve=1000)
        clock.advance(10**7)
        await store.purge(100)
        assert client.hlen(f"{store.prefix}task") == 0


@pytest.mark.parametrize("damage", [*NAMED, *UNNAMED])
@pytest.mark.parametrize("where", PLACES)
async def test_operator_s_call_is_not_stopped_by_a_damaged_record(
    clock: ManualClock, client: redis.Redis, where: str, damage: str
) -> None:
    async with opened(clock) as store:
        await place(store, where)
        Stored(store.prefix, client).damage(damage)
        known_policies.clear()
        lifted = {record.uuid for record in (await store.lift("other", ["l0", "bad", "l1"])).tasks}
        assert lifted - {"bad"} == {"l0", "l1"}
        await store.revive(["t0", "bad", "l0"])
        await store.heartbeat("first", b"", 10**9)
        new = NewTask("new", "a", b"", unique="key", policy=Policy(on_conflict="replace"))
        (added,) = await store.add([new])
        assert added.uuid == ("bad" if where == "unique" else "new")
        cancelled = {record.uuid for record in (await store.cancel("other", ["l2", "bad"])).tasks}
        assert cancelled - {"bad"} == {"l2"}


async def test_damaged_schedule_is_left_out_until_it_is_declared_again(
    clock: ManualClock, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(clock) as store:
        worker = Worker(store, "first")
        good, bad = [Schedule(name, b"rule", "digest", 1) for name in ("good", "bad")]
        await store.put_schedules([good, bad])
        client.hset(f"{store.prefix}schedules", "bad", b"\xc1")
        for _ in range(2):
            await worker.turn([])
        assert [schedule.name for schedule in await store.schedules()] == ["good"]
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "schedule bad cannot be read" in caplog.text
        await store.put_schedules([good, bad])
        assert {schedule.name for schedule in await store.schedules()} == {"good", "bad"}
