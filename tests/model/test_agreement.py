"""The position of a task agrees with the next claim."""

from __future__ import annotations

from typing import Any, TypeVar

from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec.structs import replace

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import ClaimRequest, Completed, Lease, Limit, NewTask, Policy, Position, Record, SlotPool
from onthedot.stores.memory import MemoryStore
from tests.model.stores import run_synchronously
from tests.model.strategies import limits

T = TypeVar("T")
SOURCES = ("a", "b")
Step = tuple[str, Any]

new_tasks = st.builds(
    NewTask,
    st.just(""),  # numbered when it is added
    st.sampled_from(SOURCES),
    st.just(b""),
    after=st.sampled_from([0, 0, 0, 500]),
    lane=st.sampled_from([None, "@s", "@s", "a/1", "a/2"]),
    policy=st.builds(
        Policy,
        boost=st.sampled_from([0, 0, 1000]),
        cost=st.sampled_from([1, 1, 2]),
        max_crashes=st.sampled_from([3, 3, 1]),
    ),
)
steps = st.one_of(
    st.tuples(st.just("add"), st.lists(new_tasks, min_size=1, max_size=4)),
    st.tuples(st.just("limit"), limits),
    st.tuples(st.just("claim"), st.sampled_from([0, 1, 2, 2])),
    st.tuples(st.just("done"), st.just(None)),
    st.tuples(st.just("advance"), st.sampled_from([1, 250, 500, 1000])),
)


class Steps:
    """A sequence of steps that creates the same store again, so that each question has its own store."""

    def __init__(self, plan: list[Step]) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.uuids: list[str] = []
        self.leases: list[Lease] = []
        self.requested = 0
        run_synchronously(self.store.heartbeat("w", b"", 10**12))
        for step in plan:
            self.take(step)

    def take(self, step: Step) -> None:
        match step:
            case ("add", new):
                uuids = [f"u{len(self.uuids) + number}" for number in range(len(new))]
                self.uuids += uuids
                run_synchronously(
                    self.store.add([replace(task, uuid=uuid) for task, uuid in zip(new, uuids, strict=True)])
                )
            case ("limit", Limit() as limit):
                run_synchronously(self.store.put_limits([limit]))
            case ("claim", capacity):
                self.claim(dict.fromkeys(SOURCES, capacity))
            case ("done", _) if self.leases:
                run_synchronously(self.store.turn("w", [Completed(self.leases.pop(0))], None))
            case ("advance", ms):
                self.clock.advance(ms)

    def claim(self, capacity: dict[str, int]) -> list[str]:
        self.requested += 1
        request = ClaimRequest(self.requested, [SlotPool(100, capacity)], max_suspects=100)
        claimed = run_synchronously(self.store.turn("w", [], request)).claim
        assert claimed is not None
        self.leases += [Lease(record.uuid, claimed.fence, "w") for record in claimed.tasks]
        return [record.uuid for record in claimed.tasks]

    def waiting(self, *states: str) -> list[Record]:
        """Pending rows in the order of claims."""
        records = [record for record in run_synchronously(self.store.get(self.uuids)) if record is not None]
        found = [record for record in records if record.state in states]
        return sorted(found, key=lambda record: (record.rank, record.seq))

    def position(self, uuid: str) -> Position:
        position = run_synchronously(self.store.position(uuid))
        assert position is not None
        return position


@st.composite
def plans(draw: st.DrawFn) -> list[Step]:
    """Steps with tasks to claim and with limits."""
    first = [("limit", limit) for limit in draw(st.lists(limits, min_size=1, max_size=4))]
    return [*first, ("add", draw(st.lists(new_tasks, min_size=3, max_size=6))), *draw(st.lists(steps, max_size=12))]


patient = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@patient
@given(plans(), st.sampled_from(SOURCES))
def test_claim_for_one_takes_the_first_task_without_blockers(plan: list[Step], source: str) -> None:
    life = Steps([*plan, ("claim", 0)])  # all due tasks are promoted, and admitted if possible
    ready = [record.uuid for record in life.waiting("ready") if record.source == source]
    standings = {uuid: life.position(uuid) for uuid in ready}
    free = [uuid for uuid in ready if not standings[uuid].blockers]
    assert [standings[uuid].ahead for uuid in ready] == list(range(len(ready)))
    taken = life.claim({source: 1})
    assert taken == free[:1]
    for uuid in ready:  # it is claimed if and only if it has no blocker and no startable task is ahead
        blocked = sum(other not in free for other in ready[: ready.index(uuid)])
        assert (taken == [uuid]) == (not standings[uuid].blockers and standings[uuid].ahead == blocked)


@patient
@given(plans())
def test_task_with_blockers_is_not_claimed(plan: list[Step]) -> None:
    life = Steps(plan)
    leased = [record.uuid for record in life.waiting("ready", "parked") if life.position(record.uuid).blockers]
    taken = life.claim(dict.fromkeys(SOURCES, 100))
    assert not set(taken) & set(leased)


@patient
@given(plans())
def test_first_task_of_a_lane_is_admitted_unless_the_lane_blocks_it(plan: list[Step]) -> None:
    life = Steps(plan)
    firsts: dict[str, Record] = {}
    for record in life.waiting("parked"):
        assert record.lane is not None
        firsts.setdefault(record.lane, record)
    leased = {lane: any(h.limit.name == lane for h in life.position(r.uuid).blockers) for lane, r in firsts.items()}
    life.claim({})
    ready = [record.uuid for record in life.waiting("ready")]
    assert {lane: first.uuid in ready for lane, first in firsts.items()} == {
        lane: not is_held for lane, is_held in leased.items()
    }
