"""Calls that are aborted half-way, on an app with tasks in all places. Afterwards every task must come to its end."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from msgspec.structs import replace

from onthedot.clock.manual import ManualClock
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
    Note,
    Outcome,
    Policy,
    Requeued,
    Schedule,
    SeriesEntry,
    SlotPool,
    Store,
    Suspended,
    TurnResult,
    Wait,
)

ABORTED = "aborted"
"""In the message of the error that aborts a call."""
KEEP = 10**9


class Session:
    def __init__(self, store: Store, name: str) -> None:
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
        while turn.claim is not None and (turn.claim.tasks or turn.claim.chores or turn.claim.more):
            uuids = [task.uuid for task in (*turn.claim.tasks, *turn.claim.chores)]
            assert len(set(uuids)) == len(uuids), "leased twice"
            ends: list[Outcome] = [Completed(Lease(uuid, turn.claim.fence, self._name), b"", KEEP) for uuid in uuids]
            turn = await self.claim(outcomes=ends)
            lost = [uuid for uuid, verdict in zip(uuids, turn.verdicts, strict=True) if verdict != "ok"]
            assert lost == []


class Life:
    """An app with tasks in all places: ready, scheduled, due, in lanes, parked, waiting, leased, failed."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
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

    async def end(self, repair: Callable[[], Coroutine[Any, Any, object]] | None = None) -> None:
        """Another worker takes over; at last all tasks have ended, each leased once at a time.

        repair: what an operator calls then
        """
        self.clock.advance(1)
        for session in ("first", "other", "client"):
            await self.store.close_session(session, crashed=True)
        second = Session(self.store, "second")
        await self.store.heartbeat("second", b"", 10**8)
        if repair is not None:
            await repair()
        await self._end_lifted()
        for _ in range(12):
            self.clock.advance(10_000)
            await second.drain()
        found = await self.store.get(self.uuids)
        states = {uuid: record and record.state for uuid, record in zip(self.uuids, found, strict=True)}
        assert set(states.values()) <= {"succeeded", "failed", "cancelled"}, states

    async def _end_lifted(self) -> None:
        """As the end of a move does: the tasks return to their places."""
        lifted = await self.store.lift("second", [*self.uuids, "adopted"])
        leases = [Lease(record.uuid, lifted.fence, "second") for record in lifted.tasks]
        await self.store.turn("second", [Requeued(lease, None, counted=False) for lease in leases], None)


class Call(NamedTuple):
    verb: str  # the one that is aborted
    run: Callable[[Life], Coroutine[Any, Any, object]]


async def _settle(life: Life) -> object:
    first, second, third = life.held
    return await life.first.claim(outcomes=[
        Completed(first, b"1", KEEP), Requeued(second, 0, counted=True, error=b"E"),
        Completed(third, b"", KEEP, effects=Effects([NewTask("child", "a", b"")])),
    ])  # fmt: skip


async def _suspend(life: Life) -> object:
    child = NewTask("child", "a", b"", links=Links("last", ("g",)))
    return await life.store.turn("first", [Suspended(life.held[0], Wait((("g", 1),)), Effects((child,)))], None)


def _ends_of_members(life: Life) -> list[Outcome]:
    return [Completed(lease, b"", KEEP) for lease in life.members]


async def _note(life: Life) -> object:
    kinds = ("step", "item", "progress", "error")
    return await life.store.note([Note(life.held[0], kind, f"{kind} 1", b"{}") for kind in kinds])


async def _adopt(life: Life) -> object:
    (record,) = await life.store.get(["ready0"])
    assert record is not None
    return await life.store.adopt([replace(record, uuid="adopted")])


async def _reap(life: Life) -> object:
    other = Session(life.store, "other")
    await life.store.heartbeat("other", b"", 10**9)
    life.clock.advance(10**8)
    return await other.claim()


async def _time_out(life: Life) -> object:
    await life.store.heartbeat("first", b"", 10**9)
    life.clock.advance(70_000)
    return await life.first.claim()


async def _purge(life: Life) -> object:
    life.uuids.remove("fails")
    return await life.store.purge(100, 0)


async def _fire(life: Life) -> object:
    (schedule,) = await life.store.schedules()
    return await life.store.fire([FireRequest("s", schedule.rev, [NewTask("window", "a", b"")], 10**15)])


def _schedules(life: Life) -> list[Schedule]:
    return [Schedule(name, b"rule", "other digest", int(life.clock.now())) for name in ("s", "t")]


CALLS: dict[str, Call] = {
    "add": Call("add", lambda life: life.store.add([NewTask("new", "a", b""), NewTask("new2", "a", b"")])),
    "add with a lane": Call("add", lambda life: life.store.add([NewTask("new", "a", b"", lane="a/k", unique="j")])),
    "add that replaces": Call(
        "add",
        lambda life: life.store.add([NewTask("new", "a", b"x", unique="k", policy=Policy(on_conflict="replace"))]),
    ),
    "add a waiting task": Call(
        "add",
        lambda life: life.store.add([NewTask("new", "a", b"", links=Links("last", waits=Wait((("f", 0),), 9)))]),
    ),
    "ends of members": Call("turn", lambda life: life.store.turn("first", _ends_of_members(life), None)),
    "ends of members, and the next": Call("turn", lambda life: life.first.claim(outcomes=_ends_of_members(life))),
    "suspend": Call("turn", _suspend),
    "signal": Call("signal", lambda life: life.store.signal([NewSignal("~s", "1")])),
    "subscribe": Call("subscribe", lambda life: life.store.subscribe("client", life.uuids)),
    "claim": Call("turn", lambda life: life.first.claim()),
    "claim after a gap": Call("turn", lambda life: life.first.claim(lost=1)),
    "claim after time-outs": Call("turn", _time_out),
    "settle": Call("turn", _settle),
    "note": Call("note", _note),
    "reap": Call("turn", _reap),
    "cancel": Call("cancel", lambda life: life.store.cancel("client", life.uuids)),
    "lift": Call("lift", lambda life: life.store.lift("client", life.uuids)),
    "adopt": Call("adopt", _adopt),
    "revive": Call("revive", lambda life: life.store.revive(["fails"])),
    "close": Call("close_session", lambda life: life.store.close_session("first")),
    "crash": Call("close_session", lambda life: life.store.close_session("first", crashed=True)),
    "heartbeat": Call("heartbeat", lambda life: life.store.heartbeat("first", b"", 10**7)),
    "fire": Call("fire", _fire),
    "schedules": Call("put_schedules", lambda life: life.store.put_schedules(_schedules(life))),
    "delete schedules": Call("delete_schedules", lambda life: life.store.delete_schedules(["s"])),
    "series": Call("write_series", lambda life: life.store.write_series([SeriesEntry("minutes", 1, "w", b"a")])),
    "purge": Call("purge", _purge),
    "limits": Call("put_limits", lambda life: life.store.put_limits([Limit("a/k", cap=5), Limit("a", cap=9)])),
}
