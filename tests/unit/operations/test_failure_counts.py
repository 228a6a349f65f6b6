"""The count of failed tasks: how long it takes, what it leaves to others, and its sums."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

import msgspec
import pytest

from onthedot.clock.epoch import from_ms
from onthedot.clock.system import SystemClock
from onthedot.codec.task_failure import TaskFailure
from onthedot.operations import failure_counts
from onthedot.operations.failure_counts import FailureCounts, pause_after
from onthedot.operations.failures import MAX_READ, SLICE, FailureGroups
from onthedot.stores.contract import DEFAULT, NO_HISTORY, Page, Record
from onthedot.stores.memory import MemoryStore
from tests.support.waits import SOON, until
from tests.unit.web.test_failures import fail

DAY = 86_400_000  # ms
PARTS = 24


class CountedReads(MemoryStore):
    """Notes the size of each read of a list."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.sizes: list[int] = []

    async def find(self, where: Mapping[str, str], after: str | None, limit: int) -> Page:
        self.sizes.append(limit)
        return await super().find(where, after, limit)


def failed(number: int, ended: int, error: TaskFailure) -> Record:
    history = msgspec.structs.replace(NO_HISTORY, ended=ended, error=msgspec.json.encode(error))
    return Record(f"f{number}", "import", b"", DEFAULT, None, None, 0, number, 0, "failed", history)


def count_with(slice_work: float) -> tuple[float, float]:
    """Seconds of a count of MAX_READ tasks by this work per slice, and the share of the time that it works."""
    slices = MAX_READ // SLICE
    now = 0.0
    for number in range(1, slices + 1):
        began = now
        now += slice_work
        if number < slices:
            now += pause_after(number, 0.0, began, now)
    return now, slices * slice_work / now


@pytest.mark.parametrize("slice_work", [0.005, 0.02, 0.045, 0.075])
def test_hundred_thousand_failed_tasks_are_counted_within_thirty_seconds(slice_work: float) -> None:
    """A slice takes 45 ms on a machine without other load: show 6 of the page."""
    took, _ = count_with(slice_work)
    assert took <= 30


@pytest.mark.parametrize(("slice_work", "share"), [(0.01, 0.1), (0.045, 0.4), (0.2, 0.51), (1.0, 0.51)])
def test_count_leaves_time_to_workers_also_where_it_is_slow(slice_work: float, share: float) -> None:
    assert count_with(slice_work)[1] <= share


async def test_requests_are_served_while_a_slice_is_grouped() -> None:
    """A slice takes 30 ms to group: a request that comes meanwhile must not wait for all of it."""
    store = CountedReads()
    await fail(store, [TaskFailure("KeyError", "no order 17")] * SLICE)
    counts = FailureCounts(store, SystemClock())
    looking = asyncio.create_task(counts.look(patience=SOON))
    shown: set[int] = set()
    while not looking.done():
        shown.add((await counts.look(patience=0)).read_count)
    assert len(shown) >= 4
    assert (await looking).read_count == SLICE
    await counts.close()


async def test_failed_tasks_are_read_once_per_count_and_none_while_none_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_counts, "SLICE_TIME", 0.0)
    monkeypatch.setattr(failure_counts, "LEAST_PAUSE", 0.0)
    store = CountedReads()
    await fail(store, [TaskFailure("KeyError", "no order 17")] * 3 * SLICE)
    counts = FailureCounts(store, SystemClock(), between_checks=0)

    async def is_counted() -> bool:
        return (await counts.look()).counted_to is None

    await until(is_counted)
    read = store.sizes[:]
    assert [size for size in read if size > 1] == [SLICE] * 3
    await counts.look()
    assert store.sizes[len(read) :] == [1] * (len(store.sizes) - len(read))  # only the newest one
    await counts.close()


def test_sums_of_a_group_are_those_of_its_tasks_in_any_order() -> None:
    draw = Random(20261119)
    error = TaskFailure("KeyError", "no order 17")
    for count in (1, 2, 30, 400):
        ends = [draw.randrange(DAY) for _ in range(count)]
        groups = FailureGroups()
        for start in range(0, count, 7):
            groups.add([failed(number, ends[number], error) for number in range(start, min(count, start + 7))])
            groups.describe(None, DAY)
        for begin in (None, 0, draw.choice(ends), max(ends), min(ends)):
            (group,) = groups.describe(begin, DAY)
            since = [at for at in ends if begin is None or at >= begin]
            found = (group.count, group.first, group.last, group.began)
            assert found == (len(since), from_ms(min(since)), from_ms(max(ends)), from_ms(min(ends)))
            if begin is None:
                assert group.trend == ()
                continue
            parts = [min(PARTS - 1, (at - begin) * PARTS // max(1, DAY - begin)) for at in since]
            assert group.trend == tuple(parts.count(part) for part in range(PARTS))
        assert groups.describe(max(ends) + 1, DAY) == []
