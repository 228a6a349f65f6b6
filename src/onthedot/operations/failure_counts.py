"""Counts failed tasks by error in the background, so that no request scans them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf

from onthedot.clock.epoch import from_ms, from_optional_ms, to_optional_ms
from onthedot.clock.protocol import Clock
from onthedot.operations.failures import MAX_READ, SLICE, FailureGroup, FailureGroups, newest_failures
from onthedot.operations.store_state import Tally
from onthedot.stores.contract import Record, Store

_log = logging.getLogger("onthedot.operations")
SLICE_TIME = 0.12  # seconds per slice with its pause, of which about 0.045 s are work: MAX_READ tasks take 24 s
LEAST_PAUSE = 1.0  # of the duration of a slice: a count that is slow works half of the time, and leaves it to workers
_AT_ONCE = 50  # tasks that are grouped before requests are served; about 4 ms
_BETWEEN_CHECKS = 1.0  # seconds between two looks at the number of failed tasks
_BETWEEN_COUNTS = 10.0  # seconds from a count of more than one slice to the next, and at least as long as it took


@dataclass(frozen=True, slots=True)
class FailureCount:
    """Failed tasks by error. total: kept by the store, also older ones; read_count: read by this count.

    as_of: when the count was right; counted_to: of a count that goes on, when the oldest that was read has ended
    """

    groups: Sequence[FailureGroup]
    total: int
    read_count: int
    as_of: datetime
    counted_to: datetime | None


class FailureCounts:
    """Keeps one count for all readers. It counts only while somebody asks, and only if failed tasks come or go.

    It also looks at the newest one: a retry and a new failure leave their number as it was.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        between_checks: float = _BETWEEN_CHECKS,
        between_counts: float = _BETWEEN_COUNTS,
    ) -> None:
        """between_checks, between_counts: seconds."""
        self._between_checks = between_checks
        self._between_counts = between_counts
        self._store = store
        self._clock = clock
        self._shown = FailureGroups()
        self._total: dict[str, int] = {}  # by source, as last read
        self._mark: object = None  # what the failed tasks look like from outside
        self._counted_mark: object = None  # of the shown count; None: there is none yet
        self._as_of = 0.0
        self._checked_at = -inf  # by the loop's time
        self._next_count_at = -inf
        self._is_counting = False
        self._task: asyncio.Task[None] | None = None

    async def look(
        self,
        since: datetime | None = None,
        source: str | None = None,
        patience: float = 0.1,
        tally: Tally | None = None,
    ) -> FailureCount:
        """Return what is counted, and count on in the background.

        patience: seconds to wait for a count under way; tally: of the store, if the caller has just read it
        """
        now = asyncio.get_running_loop().time()
        if self._task is None and now - self._checked_at >= self._between_checks:
            self._task = asyncio.create_task(self._check(tally), name="onthedot-failure-count")
            self._task.add_done_callback(self._end)
        task = self._task
        if task is not None:
            await asyncio.wait([task], timeout=patience)
            if task.done():
                await task  # raises the error of the store
        shown = self._shown
        total = sum(number for name, number in self._total.items() if source in (None, name))
        groups = shown.describe(to_optional_ms(since), int(self._clock.now()), source)
        counted_to = from_optional_ms(shown.oldest) if self._counted_mark is None else None
        return FailureCount(groups, total, shown.read_count, from_ms(self._as_of), counted_to)

    async def close(self) -> None:
        """End a count that is under way."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _end(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("[failures] not counted: %s", error)

    async def _check(self, tally: Tally | None) -> None:
        now = asyncio.get_running_loop().time()
        began = self._clock.now()
        if tally is None:
            tally = await self._store.tally()
        self._total = {source: number for (source, state), number in tally.items() if state == "failed"}
        newest = (await self._store.find({"state": "failed"}, None, 1)).rows if self._total else ()
        self._mark = (self._total, [(record.uuid, record.history.ended) for record in newest])
        self._checked_at = now
        if self._mark == self._counted_mark:
            self._as_of = began
        elif self._is_small() or now >= self._next_count_at:
            await self._count(began)

    def _is_small(self) -> bool:
        """One slice has them all."""
        return sum(self._total.values()) <= SLICE

    async def _count(self, began: float) -> None:
        loop = asyncio.get_running_loop()
        count_began = loop.time()
        self._next_count_at = count_began + self._between_counts
        mark = self._mark
        most = min(MAX_READ, sum(self._total.values()))
        groups = FailureGroups()
        if self._counted_mark is None:
            self._shown = groups
            self._as_of = began
        slices = 0
        slice_began = count_began
        async for records in newest_failures(self._store, most=most):
            await _add(groups, records)
            slices += 1
            if groups.read_count < most:
                await asyncio.sleep(pause_after(slices, count_began, slice_began, loop.time()))
            slice_began = loop.time()
        self._shown = groups
        self._counted_mark = mark
        self._as_of = began
        ended = loop.time()
        self._next_count_at = ended + max(self._between_counts, ended - count_began)


async def _add(groups: FailureGroups, records: Sequence[Record]) -> None:
    for start in range(0, len(records), _AT_ONCE):
        groups.add(records[start : start + _AT_ONCE])
        await asyncio.sleep(0)


def pause_after(slices: int, count_began: float, slice_began: float, now: float) -> float:
    """Seconds until the next slice begins: each has the same time, and a slice that was slow is followed by a pause.

    slices: that have ended, the last of them now

    >>> round(pause_after(1, 100.0, 100.0, 100.04), 2), round(pause_after(1, 100.0, 100.0, 100.2), 2)
    (0.08, 0.2)
    """
    return max(count_began + slices * SLICE_TIME - now, LEAST_PAUSE * (now - slice_began))
