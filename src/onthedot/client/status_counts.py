"""The counts of ``status()``: pending tasks and schedules, as last read from the store plus later adds."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from onthedot.clock.protocol import Clock
from onthedot.errors import StoreError
from onthedot.observability.events import Observer
from onthedot.stores.contract import Added, NewTask, Store

_TIMEOUT = 0.5  # seconds that a start, a stop or a first add waits for a count
MAX_AGE = 1.0  # seconds after which a count that missed concurrent adds is better than none


class StatusSnapshot(NamedTuple):
    ready: int = 0
    delayed: int = 0
    schedules: int = 0
    enabled: int = 0  # of the schedules: those that are not paused


class StatusCounts:
    """`run` counts in the background and `now` returns the last counts, so that no caller waits for the store.

    Adds of this process are counted as they happen. A count during an add cannot tell whether it includes the add: it
    is discarded and repeated, unless adds never pause. `watched` is False until ``status()`` is used: no counting.
    """

    def __init__(self, clock: Clock, observer: Observer, watched: bool) -> None:
        self._clock = clock
        self._observer = observer
        self.watched: bool = watched
        self._last = StatusSnapshot()  # the last count that was not discarded
        self._last_at = float("-inf")
        self._last_number = 0
        self._counts_begun = 0
        self._added = (0, 0)  # ready and delayed tasks, since the last count
        self._adds_begun = 0
        self._adds_ended = 0
        self.after_fork()

    def after_fork(self) -> None:
        """In the child no count and no add is in progress."""
        self._lock = threading.Lock()
        self._counters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []  # of `run`, by loop
        self._adds_begun = 0
        self._adds_ended = 0

    def now(self) -> StatusSnapshot:
        """Returns the last count plus later adds of this process."""
        with self._lock:
            ready, delayed = self._added
            return self._last._replace(ready=self._last.ready + ready, delayed=self._last.delayed + delayed)

    # -- adds of this process

    def add_started(self) -> None:
        with self._lock:
            self._adds_begun += 1

    def add_finished(self, tasks: Sequence[NewTask], answers: Sequence[Added]) -> None:
        """answers: none if the add failed; if it was stored nevertheless, the next count includes it."""
        now = self._clock.now() + self._clock.wall_clock_jump()
        fresh = [task for task, answer in zip(tasks, answers, strict=False) if answer.fresh]
        ready = sum(_is_ready(task, now) for task in fresh)
        with self._lock:
            self._adds_ended += 1
            self._added = (self._added[0] + ready, self._added[1] + len(fresh) - ready)

    # -- counting

    async def refresh(self, store: Store) -> StatusSnapshot:
        """Counts, keeps the count unless an add interfered, and returns it."""
        with self._lock:
            self._counts_begun += 1
            number = self._counts_begun
            adds = self._adds_begun
            began = time.monotonic()
            alone = adds == self._adds_ended
        schedules = await store.schedules()
        counts = {"scheduled": 0, "ready": 0, "parked": 0}
        for (_, state), count in (await store.tally()).items():
            if state in counts:
                counts[state] += count
        enabled = sum(not schedule.paused for schedule in schedules)
        snapshot = StatusSnapshot(counts["ready"] + counts["parked"], counts["scheduled"], len(schedules), enabled)
        with self._lock:
            alone = alone and adds == self._adds_begun
            if number > self._last_number and (alone or began - self._last_at > MAX_AGE):
                self._last = snapshot
                self._last_at = began
                self._last_number = number
                self._added = (0, 0)
        if not alone:
            self.mark_stale()
        return snapshot

    async def count_now(self, store: Store) -> None:
        """Counts before it returns, unless the store takes too long: then a later count is right."""
        with suppress(StoreError, TimeoutError):  # adds and turns report what is wrong with the store
            async with asyncio.timeout(_TIMEOUT):
                await self.refresh(store)

    async def run(self, store: Store) -> None:
        """Counts on this loop whenever the counts are stale, until it is cancelled."""
        stale = asyncio.Event()
        counter = (asyncio.get_running_loop(), stale)
        self._counters.append(counter)
        try:
            while True:
                await stale.wait()
                stale.clear()
                began = time.monotonic()
                try:
                    await self.refresh(store)
                except StoreError:
                    pass  # reported by adds and turns
                except Exception as error:  # noqa: BLE001 - logged; the last counts stay
                    self._observer.store_failed("counting", error)
                await asyncio.sleep(pause_after(time.monotonic() - began))
        finally:
            self._counters.remove(counter)

    def mark_stale(self) -> bool:
        """Requests a count, from any thread. Returns False if no loop of this process counts."""
        for loop, stale in reversed(self._counters):
            if stale.is_set():
                return True
            try:
                loop.call_soon_threadsafe(stale.set)
            except RuntimeError:  # the loop was closed before `run` was cancelled
                continue
            return True
        return False


def pause_after(took: float) -> float:
    """Seconds until the next count: fifty times what the last one took, within bounds.

    A count may read thousands of schedules; but one that only waited for its turn must not delay the next for long.

    >>> pause_after(0.0005), pause_after(0.01), pause_after(4)
    (0.1, 0.5, 2.0)
    """
    return min(max(0.1, 50 * took), 2.0)


def _is_ready(task: NewTask, now: float) -> bool:
    """Whether a new task is ready at once."""
    if task.lane is not None:
        return False
    if task.at is None:
        return task.after <= 0
    return task.at <= now
