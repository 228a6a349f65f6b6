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
from onthedot.stores.contract import Store

_log = logging.getLogger("onthedot.operations")
_PAUSE = 0.125  # seconds between two slices, and at least three times the duration of the last one
_LOAD = 3
_BETWEEN_CHECKS = 1.0  # seconds between two looks at the number of failed tasks
_BETWEEN_COUNTS = 10.0  # seconds between two counts that take more than one slice


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
        self._counted_at = -inf
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
        elif self._is_small() or now - self._counted_at >= self._between_counts:
            await self._count(began)

    def _is_small(self) -> bool:
        """One slice has them all."""
        return sum(self._total.values()) <= SLICE

    async def _count(self, began: float) -> None:
        loop = asyncio.get_running_loop()
        self._counted_at = loop.time()
        mark = self._mark
        most = min(MAX_READ, sum(self._total.values()))
        groups = FailureGroups()
        if self._counted_mark is None:
            self._shown = groups
            self._as_of = began
        before = loop.time()
        async for records in newest_failures(self._store, most=most):
            groups.add(records)
            if groups.read_count < most:
                await asyncio.sleep(max(_PAUSE, _LOAD * (loop.time() - before)))
            before = loop.time()
        self._shown = groups
        self._counted_mark = mark
        self._as_of = began
