"""Helpers with one line per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any
from uuid import UUID

from onthedot.stores.contract import (
    ClaimRequest,
    ClaimResult,
    Completed,
    Effects,
    Ended,
    HeartbeatResult,
    Lease,
    Limit,
    Links,
    NewTask,
    Outcome,
    Policy,
    Record,
    Requeued,
    SlotPool,
    State,
    Store,
    Suspended,
    TurnResult,
    Verdict,
    Wait,
)

LEASE = 86_400_000  # long enough that no session dies by accident
PLACES = ("at", "after", "lane", "unique", "links")  # fields of a new task; all others belong to its policy
_numbers = count(1)


def _new_uuid() -> str:
    """Alternates between the usual form and another one, because a store may encode them differently."""
    number = next(_numbers)
    return f"t{number:06}" if number % 2 else str(UUID(int=number << 80))


def task(source: str = "a", uuid: str | None = None, body: bytes = b"{}", **options: Any) -> NewTask:
    """A new task; other keywords are fields of its policy."""
    own = {name: options.pop(name) for name in PLACES if name in options}
    return NewTask(uuid or _new_uuid(), source, body, policy=Policy(**options), **own)


def tasks(number: int, source: str = "a", **options: Any) -> list[NewTask]:
    return [task(source, **options) for _ in range(number)]


def member(*increments: str, source: str = "a", flow: str | None = None, **options: Any) -> NewTask:
    """A task whose end increments counters."""
    return task(source, links=Links(flow, increments), **options)


def waiting(
    *counters: tuple[str, int], increments: tuple[str, ...] = (), flow: str | None = None, **options: Any
) -> NewTask:
    """A task that waits for the first of these counters; timeout, delay and requires are fields of its wait."""
    own = {name: options.pop(name) for name in ("timeout", "delay", "requires") if name in options}
    return task(links=Links(flow, increments, Wait(counters, **own)), **options)


async def value(store: Store, name: str) -> tuple[int, int]:
    """Of a counter: all ends, and those that did not succeed."""
    (counter,) = await store.counters([name])
    return counter.value, counter.failed


async def add(store: Store, *new: NewTask) -> list[str]:
    return [added.uuid for added in await store.add(new)]


async def look(store: Store, uuid: str) -> Record:
    (record,) = await store.get([uuid])
    assert record is not None, f"{uuid} is gone"
    return record


async def state(store: Store, uuid: str) -> State:
    return (await look(store, uuid)).state


async def states(store: Store, uuids: Sequence[str]) -> list[State | None]:
    return [None if record is None else record.state for record in await store.get(uuids)]


def names(records: Sequence[Record]) -> list[str]:
    return [record.uuid for record in records]


async def limit(store: Store, name: str, **fields: Any) -> None:
    await store.put_limits([Limit(name, **fields)])


class Worker:
    """A session that numbers its requests and remembers the lease of each task."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self.number = 0
        self.leases: dict[str, Lease] = {}

    async def crash(self) -> None:
        await self.store.close_session(self.name, crashed=True)

    async def heartbeat(self, lease: int = LEASE) -> HeartbeatResult:
        return await self.store.heartbeat(self.name, b"info", lease)

    async def turn(
        self,
        *sources: str,
        outcomes: Sequence[Outcome] = (),
        total: int = 1000,
        room: Mapping[str, int] | None = None,
        pools: Sequence[SlotPool] | None = None,
        suspects: int = 100,
        known: frozenset[str] | None = None,
        repeat: bool = False,
        number: int | None = None,
        lost: int = 0,
        **waits: Any,
    ) -> TurnResult:
        """number: of a request that is delivered late. lost: how many requests before this one the store has lost."""
        if number is None:
            self.number += lost + (not repeat)
            number = self.number
        if pools is None:
            pools = [SlotPool(total, room or dict.fromkeys(sources or ("a",), total))]
        turn = await self.store.turn(self.name, outcomes, ClaimRequest(number, pools, suspects, known, **waits))
        if turn.claim is not None:
            for record in (*turn.claim.tasks, *turn.claim.chores):
                self.leases[record.uuid] = Lease(record.uuid, turn.claim.fence, self.name)
        return turn

    async def claim(self, *sources: str, **options: Any) -> ClaimResult:
        turn = await self.turn(*sources, **options)
        assert turn.alive
        assert turn.claim is not None
        return turn.claim

    async def runs(self, *sources: str, **options: Any) -> list[str]:
        """Claims, and returns the uuids of the tasks to run."""
        return names((await self.claim(*sources, **options)).tasks)

    async def chores(self, **options: Any) -> dict[str, str]:
        """Claims chores only: uuid → reason."""
        options = {"total": 0} | options
        return {record.uuid: record.history.reason for record in (await self.claim(**options)).chores}

    async def cancel(self, *uuids: str) -> list[str]:
        leased = await self.store.cancel(self.name, uuids)
        for record in leased.tasks:
            self.leases[record.uuid] = Lease(record.uuid, leased.fence, self.name)
        return names(leased.tasks)

    async def settle(self, *outcomes: Outcome) -> list[Verdict]:
        turn = await self.store.turn(self.name, outcomes, None)
        assert turn.claim is None
        return list(turn.verdicts)

    def done(self, uuid: str, result: bytes = b"", *, adds: Sequence[NewTask] = (), **options: Any) -> Completed:
        return Completed(self.leases[uuid], result, effects=Effects(tuple(adds)) if adds else None, **options)

    def failed(self, uuid: str, error: bytes = b"boom", **options: Any) -> Ended:
        return Ended(self.leases[uuid], "failed", error, **options)

    def cancelled(self, uuid: str, error: bytes = b"cancelled", **options: Any) -> Ended:
        return Ended(self.leases[uuid], "cancelled", error, **options)

    def retry(self, uuid: str, after: int = 0, error: bytes = b"boom", **options: Any) -> Requeued:
        return Requeued(self.leases[uuid], after, counted=True, error=error, **options)

    def snooze(self, uuid: str, after: int = 0) -> Requeued:
        return Requeued(self.leases[uuid], after, counted=False)

    def release(self, uuid: str) -> Requeued:
        return Requeued(self.leases[uuid], None, counted=False)

    def suspended(
        self, uuid: str, *counters: tuple[str, int], adds: Sequence[NewTask] = (), **options: Any
    ) -> Suspended:
        return Suspended(self.leases[uuid], Wait(counters, **options), Effects(tuple(adds)) if adds else None)

    async def run_to_failure(self, uuid: str, source: str = "a") -> None:
        assert uuid in await self.runs(source)
        assert await self.settle(self.failed(uuid)) == ["ok"]
