"""Two stores that get the same calls, a store and the naive store, and the comparison of their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from hypothesis.stateful import RuleBasedStateMachine
from msgspec.structs import asdict, replace

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import (
    Blocker,
    Completed,
    Ended,
    Lease,
    Limit,
    Note,
    Record,
    Requeued,
    Schedule,
    State,
    Store,
    Suspended,
)
from tests.model.naive import NaiveStore
from tests.model.stores import OnMemory

LISTS: list[dict[str, str]] = [{"state": state} for state in get_args(State)]
LISTS += [{"state": state, "source": "a"} for state in ("failed", "ready", "scheduled", "succeeded", "cancelled")]


class StorePair(OnMemory, RuleBasedStateMachine):
    """A store and the naive store. Fences differ between them, so they are translated."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store: Store = self.made()
        self.naive = NaiveStore(self.clock)
        self.leases: list[Lease] = []  # all leases so far, with the fences of the naive store
        self.fences = {0: 0}  # fence of the naive store → fence of the other

    # -- calls to both

    def call(self, verb: str, *args: Any) -> tuple[Any, Any]:
        theirs = self.wait(getattr(self.store, verb)(*(self.translated(arg) for arg in args)))
        return theirs, getattr(self.naive, verb)(*args)

    def same(self, verb: str, *args: Any) -> Any:
        theirs, ours = self.call(verb, *args)
        assert plain(theirs) == plain(ours), verb
        return ours

    def translated(self, arg: Any) -> Any:
        """The same call with the fences of the other store."""
        match arg:
            case Lease():
                return replace(arg, fence=self.fences.get(arg.fence, -1))
            case Completed() | Requeued() | Ended() | Suspended() | Note():
                return replace(arg, lease=self.translated(arg.lease))
            case list():
                return [self.translated(each) for each in arg]
        return arg

    def record_leases(self, theirs: Any, ours: Any, session: str) -> None:
        """Checks that both claims took something or neither, and that the fence grew."""
        assert bool(theirs.fence) == bool(ours.fence)
        if ours.fence and ours.fence not in self.fences:
            assert theirs.fence > max(self.fences.values())
            self.fences[ours.fence] = theirs.fence
        assert self.fences[ours.fence] == theirs.fence
        records = [*ours.tasks, *getattr(ours, "chores", ())]
        self.leases += [Lease(record.uuid, ours.fence, session) for record in records]

    def records(self, records: Sequence[Record | None], *, ours: bool) -> list[dict[str, Any]]:
        """Records in a form that can be compared, without numbers that a store chooses."""
        plain = []
        for record in records:
            if record is not None:
                history = asdict(record.history)
                history["settled_fence"] = self.fences[history["settled_fence"]] if ours else history["settled_fence"]
                history["reason"] = "due" if history["reason"] == "crash" else history["reason"]
                plain.append(asdict(record) | history | {"history": None})
        return plain

    def claimed_records(self, records: Sequence[Record], *, ours: bool) -> list[dict[str, Any]]:
        """Claimed records; a store may or may not show them as running already."""
        return [record | {"state": "claimed"} for record in self.records(records, ours=ours)]

    def same_pages(self, where: dict[str, str]) -> None:
        rows: list[Record] = []
        after: str | None = None
        while True:
            page = self.wait(self.store.find(where, after, 5))
            rows += page.rows
            after = page.after
            if after is None:
                break
        ours = self.naive.find(where, None, 1000).rows
        check_equal_records(self.records(rows, ours=False), self.records(ours, ours=True))


def plain(answer: Any) -> Any:
    return [*answer] if isinstance(answer, Sequence) else answer


def check_equal_records(theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> None:
    """Fails with the differences only."""
    names = [[each["uuid"] for each in some] for some in (theirs, ours)]
    assert names[0] == names[1], f"{names[0]} instead of {names[1]}"
    for their, our in zip(theirs, ours, strict=True):
        differ = {name: (their[name], our[name]) for name in our if their[name] != our[name]}
        assert not differ, f"{our['uuid']}: {differ}"


def blocker_facts(blocker: Blocker) -> tuple[object, ...]:
    return replace(blocker.limit, owner="code"), blocker.reason, blocker.running, blocker.opens_in is None


def note_facts(entry: tuple[int, Note]) -> tuple[str, str, bytes]:
    return entry[1].kind, entry[1].name, entry[1].data


def by_name(schedules: Sequence[Schedule]) -> Mapping[str, Schedule]:
    return {schedule.name: replace(schedule, rev=0) for schedule in schedules}


def by_owner(limits: Sequence[Limit]) -> dict[tuple[str, str], Limit]:
    return {(limit.name, limit.owner): limit for limit in limits}
