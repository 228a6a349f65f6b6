"""Who gets the free slots: the arithmetic; what it comes to in an app is in test_slots_in_apps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from hypothesis import given, strategies as st

from onthedot.definitions.sources import Source, Sources
from onthedot.engine.slots import Slots


@dataclass(eq=False)
class Kind:
    """A source, as far as slots look at one."""

    name: str
    executor: str = "async"
    own: int | None = None

    def max_running(self) -> int | None:
        return self.own


def test_a_claim_takes_no_more_than_a_batch() -> None:
    sources = Sources()
    for name in ("a", "b"):
        sources.put(cast("Source", Kind(name)))
    slots = Slots(sources, {"async": 10}, claim_batch=4)
    (pool,) = slots.pools(0)
    assert (pool.total, sum(pool.capacity.values())) == (4, 4)
    slots.take(["a"] * 8)
    assert slots.pools(0)[0].total == 2, "no more than there are free slots"


class Desk:
    """Slots and a store that has `work` left of each source and prefers those that come first in the alphabet."""

    def __init__(self, kinds: list[Kind], totals: Mapping[str, int], *, one_pool: bool = False) -> None:
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
        """One turn, checked. False: it took nothing, and put nobody to rest."""
        taken: list[str] = []
        rest: dict[str, float | None] = {}
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
                    rest[name] = None
        self.slots.take(taken)
        self.running.update(taken)
        self.slots.mark_idle(rest, 0)
        return bool(taken or rest)

    def fill(self) -> None:
        while self.claim():
            pass
        for kind in self.kinds:
            assert self.busy(self.pools[kind.name]) <= self.totals[self.pools[kind.name]]
            assert kind.own is None or self.running[kind.name] <= kind.own

    def end(self, name: str) -> None:
        if self.running[name]:
            self.running[name] -= 1
            self.slots.free(name)


NAMES = "abcdefgh"
numbers = st.integers(1, 12)
kinds = st.lists(
    st.tuples(st.sampled_from(["async", "thread"]), st.none() | st.integers(1, 3)), min_size=1, max_size=len(NAMES)
).map(lambda many: [Kind(NAMES[n], executor, own) for n, (executor, own) in enumerate(many)])
steps = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(-3, 20)), max_size=30)


@given(kinds, numbers, numbers, st.booleans(), steps)
def test_never_more_than_is_free_and_never_idle_while_there_is_work(
    kinds: list[Kind], loops: int, threads: int, one_pool: bool, steps: list[tuple[str, int]]
) -> None:
    desk = Desk(kinds, {"async": loops, "thread": threads}, one_pool=one_pool)
    for name, change in steps:
        if name not in desk.pools:
            continue
        if change > 0:
            desk.add({name: change})
        for _ in range(-change):
            desk.end(name)
        desk.fill()
        for kind in kinds:
            pool = desk.pools[kind.name]
            full = desk.busy(pool) == desk.totals[pool] or desk.running[kind.name] == kind.own
            assert full or not desk.work[kind.name], f"{kind.name} waits although there is a slot"


@given(st.integers(1, len(NAMES)), st.integers(1, 40), st.lists(st.sampled_from(NAMES), max_size=40))
def test_those_who_always_have_work_get_the_same_share(number: int, total: int, ends: list[str]) -> None:
    desk = Desk([Kind(name) for name in NAMES[:number]], {"async": total})
    desk.add(dict.fromkeys(NAMES[:number], 1000))
    desk.fill()
    for name in ends:
        desk.end(name)
        desk.fill()
        shares = [desk.running[name] for name in NAMES[:number]]
        assert max(shares) <= -(-total // number)
        assert total < number or min(shares) >= 1, "starved by those whose tasks are older"


def test_who_comes_late_gets_the_next_free_slots() -> None:
    desk = Desk([Kind("a"), Kind("b")], {"async": 4})
    desk.add({"a": 1000})
    desk.fill()
    assert desk.running == {"a": 4}
    desk.add({"b": 1000})
    for _ in range(2):
        desk.end("a")
        desk.fill()
    assert desk.running == {"a": 2, "b": 2}


def test_an_alarm_costs_nobody_his_slots() -> None:
    """It may be of anybody who rests: they are asked too, if one question has room for all of them."""
    desk = Desk([Kind(name) for name in "abcdef"], {"async": 6})
    desk.fill()  # nobody has anything
    assert [pool.capacity for pool in desk.slots.pools(0)] == []
    desk.slots.take(["a"])
    assert [pool.capacity for pool in desk.slots.pools(0, alarm_due=True)] == [{}], (
        "five of six would have to be chosen"
    )
    assert not desk.slots.has_work(), "nor is there another turn for it"
    desk.slots.free("a")
    assert [set(pool.capacity) for pool in desk.slots.pools(0, alarm_due=True)] == [set("abcdef")]
    desk.fill()
    desk.add({"a": 1000})
    assert [pool.capacity for pool in desk.slots.pools(0, alarm_due=True)] == [{"a": 6}]


def test_a_poll_is_one_question() -> None:
    """However many rest; who has work keeps his share."""
    desk = Desk([Kind(name) for name in "abcdefgh"], {"async": 2})
    desk.fill()
    assert [pool.capacity for pool in desk.slots.pools(0, is_poll=True)] == [dict.fromkeys("abcdefgh", 1)]
    desk.fill()
    desk.add({"a": 1000})
    assert [pool.capacity for pool in desk.slots.pools(0, is_poll=True)] == [{"a": 2} | dict.fromkeys("bcdefgh", 1)]
    desk.slots.mark_idle(dict.fromkeys("bcdefgh"), 0)
    desk.slots.take(["a", "a"])
    assert [pool.capacity for pool in desk.slots.pools(0, is_poll=True)] == [{}]
    desk.slots.free("a")
    assert set(desk.slots.pools(0)[0].capacity) & set("bcdefgh"), "asked late, since there was no slot"


def test_who_rests_is_not_asked_until_hint_time_or_refresh() -> None:
    desk = Desk([Kind("a"), Kind("b"), Kind("c")], {"async": 9})
    slots = desk.slots

    def asked(now: float = 0) -> set[str]:
        return {name for pool in slots.pools(now) for name in pool.capacity}

    assert asked() == {"a", "b", "c"}
    slots.mark_idle({"a": None, "b": 50.0}, now=100)
    assert asked(149) == {"c"}
    assert asked(150) == {"b", "c"}
    slots.wake(["a", "unknown"])
    assert asked(150) == {"a", "b", "c"}
    slots.hint(["c"])  # after the ask: its answer is older than the hint
    slots.mark_idle({"a": None, "c": None}, now=150)
    assert asked(150) == {"b", "c"}
    slots.refresh()
    assert asked(150) == {"a", "b", "c"}


def test_a_source_that_comes_later_is_asked_for() -> None:
    sources = Sources()
    slots = Slots(sources, {"async": 2})
    assert list(slots.pools(0)) == []
    sources.put(cast("Source", Kind("late")))
    slots.refresh()
    assert [dict(pool.capacity) for pool in slots.pools(0)] == [{"late": 2}]


def test_one_slot_for_all_is_offered_to_all() -> None:
    desk = Desk([Kind("a"), Kind("b", "thread")], {"async": 1, "thread": 9}, one_pool=True)
    assert [(pool.total, dict(pool.capacity)) for pool in desk.slots.pools(0)] == [(1, {"a": 1, "b": 1})]
