"""How free slots are shared between sources. test_fair_share has the same in an app."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from hypothesis import given, strategies as st

from onthedot.definitions.sources import Source, Sources
from onthedot.engine.slots import Slots


@dataclass
class FakeOptions:
    max_pending: int | None = None


@dataclass(eq=False)
class FakeSource:
    """The part of a source that slots use."""

    name: str
    executor: str = "async"
    own: int | None = None
    options: FakeOptions = field(default_factory=FakeOptions)

    def max_running(self) -> int | None:
        return self.own


def test_claim_takes_at_most_one_batch() -> None:
    sources = Sources()
    for name in ("a", "b"):
        sources.put(cast("Source", FakeSource(name)))
    slots = Slots(sources, {"async": 10}, claim_batch=4)
    (pool,) = slots.pools(0)
    assert (pool.total, sum(pool.capacity.values())) == (4, 4)
    slots.take(["a"] * 8)
    assert slots.pools(0)[0].total == 2, "no more than there are free slots"


def test_source_with_own_slots_is_claimed_beside_full_pools() -> None:
    for one_pool in (False, True):
        sources = Sources()
        sources.put(cast("Source", FakeSource("a")))
        sources.put_builtin(cast("Source", FakeSource("stop")), own_slots=3)
        slots = Slots(sources, {"async": 2}, one_pool=one_pool)
        slots.take(["a", "a", "stop"])
        assert [pool.capacity for pool in slots.pools(0)] == [{}, {"stop": 2}]
        assert slots.has_work()
        assert slots.offer() == {"a": 0, "stop": 2}
        slots.take(["stop", "stop"])
        slots.release("a")
        assert [pool.capacity for pool in slots.pools(0)] == [{"a": 1}, {}]


def test_alarm_adds_no_pool_for_a_source_with_own_slots() -> None:
    sources = Sources()
    sources.put(cast("Source", FakeSource("a")))
    sources.put_builtin(cast("Source", FakeSource("stop")), own_slots=3)
    slots = Slots(sources, {"async": 2})
    slots.pools(0)
    slots.mark_idle({"a": None, "stop": None}, 0)
    assert [pool.capacity for pool in slots.pools(0, alarm_due=True)] == [{"a": 2}]
    slots.mark_idle({"a": None}, 0)
    assert [pool.capacity for pool in slots.pools(0, is_poll=True)] == [{"a": 2}, {"stop": 3}]


class Bench:
    """Slots, and a store with `work` tasks left per source that prefers sources in alphabetical order."""

    def __init__(self, kinds: list[FakeSource], totals: Mapping[str, int], *, one_pool: bool = False) -> None:
        sources = Sources()
        for kind in kinds:
            sources.put(cast("Source", kind))
        self.kinds = kinds
        self.pools = {kind.name: "" if one_pool else kind.executor for kind in kinds}
        self.totals = {"": totals["async"]} if one_pool else totals
        self.slots = Slots(sources, totals, one_pool=one_pool)
        self.work: Counter[str] = Counter()
        self.running: Counter[str] = Counter()

    def busy(self, pool: str) -> int:
        return sum(count for name, count in self.running.items() if self.pools[name] == pool)

    def add(self, work: Mapping[str, int]) -> None:
        self.work.update(work)
        self.slots.hint(work)

    def claim(self) -> bool:
        """One checked turn. False: it took no task, and no source became idle."""
        taken: list[str] = []
        idle: dict[str, float | None] = {}
        for pool in self.slots.pools(0):
            left = pool.total
            for name in sorted(pool.capacity):
                assert (
                    0 < pool.capacity[name] <= pool.total <= self.totals[self.pools[name]] - self.busy(self.pools[name])
                )
                took = min(pool.capacity[name], self.work[name], left)
                taken += [name] * took
                self.work[name] -= took
                left -= took
                if not self.work[name]:
                    idle[name] = None
        self.slots.take(taken)
        self.running.update(taken)
        self.slots.mark_idle(idle, 0)
        return bool(taken or idle)

    def fill(self) -> None:
        while self.claim():
            pass
        for kind in self.kinds:
            assert self.busy(self.pools[kind.name]) <= self.totals[self.pools[kind.name]]
            assert kind.own is None or self.running[kind.name] <= kind.own

    def end(self, name: str) -> None:
        if self.running[name]:
            self.running[name] -= 1
            self.slots.release(name)


NAMES = "abcdefgh"
numbers = st.integers(1, 12)
kinds = st.lists(
    st.tuples(st.sampled_from(["async", "thread"]), st.none() | st.integers(1, 3)), min_size=1, max_size=len(NAMES)
).map(lambda many: [FakeSource(NAMES[n], executor, own) for n, (executor, own) in enumerate(many)])
steps = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(-3, 20)), max_size=30)


@given(kinds, numbers, numbers, st.booleans(), steps)
def test_slots_are_never_exceeded_and_never_free_while_there_is_work(
    kinds: list[FakeSource], loops: int, threads: int, one_pool: bool, steps: list[tuple[str, int]]
) -> None:
    bench = Bench(kinds, {"async": loops, "thread": threads}, one_pool=one_pool)
    for name, change in steps:
        if name not in bench.pools:
            continue
        if change > 0:
            bench.add({name: change})
        for _ in range(-change):
            bench.end(name)
        bench.fill()
        for kind in kinds:
            pool = bench.pools[kind.name]
            full = bench.busy(pool) == bench.totals[pool] or bench.running[kind.name] == kind.own
            assert full or not bench.work[kind.name], f"{kind.name} waits although there is a slot"


@given(st.integers(1, len(NAMES)), st.integers(1, 40), st.lists(st.sampled_from(NAMES), max_size=40))
def test_sources_with_work_get_equal_shares(number: int, total: int, ends: list[str]) -> None:
    bench = Bench([FakeSource(name) for name in NAMES[:number]], {"async": total})
    bench.add(dict.fromkeys(NAMES[:number], 1000))
    bench.fill()
    for name in ends:
        bench.end(name)
        bench.fill()
        shares = [bench.running[name] for name in NAMES[:number]]
        assert max(shares) <= -(-total // number)
        assert total < number or min(shares) >= 1, "no source is starved by older tasks of others"


def test_source_with_new_work_gets_the_next_free_slots() -> None:
    bench = Bench([FakeSource("a"), FakeSource("b")], {"async": 4})
    bench.add({"a": 1000})
    bench.fill()
    assert bench.running == {"a": 4}
    bench.add({"b": 1000})
    for _ in range(2):
        bench.end("a")
        bench.fill()
    assert bench.running == {"a": 2, "b": 2}


def test_alarm_takes_no_slot_from_active_sources() -> None:
    """The alarm may be of any idle source: all are in the claim if there are slots for all of them."""
    bench = Bench([FakeSource(name) for name in "abcdef"], {"async": 6})
    bench.fill()  # every source is idle
    assert [pool.capacity for pool in bench.slots.pools(0)] == []
    bench.slots.take(["a"])
    assert [pool.capacity for pool in bench.slots.pools(0, alarm_due=True)] == [{}], (
        "five of six would have to be chosen"
    )
    assert not bench.slots.has_work(), "and no other turn follows"
    bench.slots.release("a")
    assert [set(pool.capacity) for pool in bench.slots.pools(0, alarm_due=True)] == [set("abcdef")]
    bench.fill()
    bench.add({"a": 1000})
    assert [pool.capacity for pool in bench.slots.pools(0, alarm_due=True)] == [{"a": 6}]


def test_claim_that_may_end_a_wait_includes_idle_sources_once() -> None:
    """It settles a member of a flow, or a signal came: the task that waits may be of any source."""
    bench = Bench([FakeSource(name) for name in "abc"], {"async": 6})
    bench.fill()  # every source is idle
    bench.slots.expect_end_of_wait()
    assert [set(pool.capacity) for pool in bench.slots.pools(0)] == [set("abc")]
    bench.slots.mark_idle(dict.fromkeys("abc"), 0)
    assert [pool.capacity for pool in bench.slots.pools(0)] == []


def test_poll_includes_all_idle_sources_in_one_claim() -> None:
    """Active sources keep their share."""
    bench = Bench([FakeSource(name) for name in "abcdefgh"], {"async": 2})
    bench.fill()
    assert [pool.capacity for pool in bench.slots.pools(0, is_poll=True)] == [dict.fromkeys("abcdefgh", 1)]
    bench.fill()
    bench.add({"a": 1000})
    assert [pool.capacity for pool in bench.slots.pools(0, is_poll=True)] == [{"a": 2} | dict.fromkeys("bcdefgh", 1)]
    bench.slots.mark_idle(dict.fromkeys("bcdefgh"), 0)
    bench.slots.take(["a", "a"])
    assert [pool.capacity for pool in bench.slots.pools(0, is_poll=True)] == [{}]
    bench.slots.release("a")
    assert set(bench.slots.pools(0)[0].capacity) & set("bcdefgh"), "they are in the next claim, since no slot was free"


def test_idle_source_is_left_out_until_hint_time_or_refresh() -> None:
    bench = Bench([FakeSource("a"), FakeSource("b"), FakeSource("c")], {"async": 9})
    slots = bench.slots

    def claimed(now: float = 0) -> set[str]:
        return {name for pool in slots.pools(now) for name in pool.capacity}

    assert claimed() == {"a", "b", "c"}
    slots.mark_idle({"a": None, "b": 50.0}, now=100)
    assert claimed(149) == {"c"}
    assert claimed(150) == {"b", "c"}
    slots.wake(["a", "unknown"])
    assert claimed(150) == {"a", "b", "c"}
    slots.hint(["c"])  # after the request: its answer is older than the hint
    slots.mark_idle({"a": None, "c": None}, now=150)
    assert claimed(150) == {"b", "c"}
    slots.refresh()
    assert claimed(150) == {"a", "b", "c"}


def test_source_that_is_added_later_is_claimed() -> None:
    sources = Sources()
    slots = Slots(sources, {"async": 2})
    assert list(slots.pools(0)) == []
    sources.put(cast("Source", FakeSource("late")))
    slots.refresh()
    assert [dict(pool.capacity) for pool in slots.pools(0)] == [{"late": 2}]


def test_one_shared_slot_is_open_to_all_sources() -> None:
    bench = Bench([FakeSource("a"), FakeSource("b", "thread")], {"async": 1, "thread": 9}, one_pool=True)
    assert [(pool.total, dict(pool.capacity)) for pool in bench.slots.pools(0)] == [(1, {"a": 1, "b": 1})]
