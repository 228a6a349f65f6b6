"""Entries before a place in an order, in whichever way they came and went."""

from __future__ import annotations

from random import Random

from onthedot.stores.contract import DEFAULT, Record
from onthedot.stores.memory.ordered_queue import OrderedQueue


def record(seq: int) -> Record:
    return Record(f"t{seq}", "a", b"", DEFAULT, None, None, 0, seq, 0, "ready")


def test_before_equals_a_count_of_the_sorted_keys() -> None:
    random = Random(3)
    order = OrderedQueue()
    there: set[tuple[int, int]] = set()
    for _ in range(3000):
        place = (random.randrange(20), random.randrange(60))
        if place in there:
            order.remove(place[0], record(place[1]))
            there.remove(place)
        else:  # also one that was there before
            order.push(place[0], record(place[1]))
            there.add(place)
        if random.random() < 0.05 and there:
            first = min(there)
            assert [each.seq for each in order.pop_many(1, None)] == [first[1]]
            there.remove(first)
        at = (random.randrange(20), random.randrange(60))
        assert order.before(*at, 10_000) == sum(each < at for each in there)


def test_before_stops_at_its_limit() -> None:
    order = OrderedQueue()
    for seq in (*range(50, 100), *range(50)):  # half of them in order, half before these
        order.push(0, record(seq))
    assert [order.before(0, 100, most) for most in (0, 1, 60, 100, 1000)] == [0, 1, 60, 100, 100]
