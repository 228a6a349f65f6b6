"""How many tasks wait, and how many schedules there are: told at once, from the last look and what was added since."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from onthedot.clock.protocol import Clock
from onthedot.errors import StoreError
from onthedot.observability.logs import LogObserver
from onthedot.stores.contract import Added, NewTask, Store

_PATIENCE = 0.5  # seconds that a start, a stop or a first addition waits for a look
_OLD = 1.0  # seconds after which a look that is off by what was being added is better than none


class StatusSnapshot(NamedTuple):
    ready: int = 0
    delayed: int = 0
    schedules: int = 0
    enabled: int = 0  # of the schedules: those that are not paused


class StatusCounts:
    """Nobody who asks waits for the store: `keep` looks on the side, and `now` tells what it saw last.

    What this process adds is counted as it goes. A look that an addition runs into cannot tell whether it has seen it:
    it is thrown away and taken again, unless additions never pause. Nobody pays for this who never asks: `watched`.
    """

    def __init__(self, clock: Clock, logs: LogObserver, watched: bool) -> None:
        self._clock = clock
        self._logs = logs
        self.watched: bool = watched
        self._seen = StatusSnapshot()
        self._added = (0, 0)  # ready, delayed: since the look that counts
        self._at = float("-inf")  # when that look was taken
        self._counts = self._looks = 0  # its number, and that of the last one begun
        self._begun = self._ended = 0  # additions
        self.after_fork()

    def after_fork(self) -> None:
        """In the child nobody looks, and nobody is adding."""
        self._lock = threading.Lock()
        self._keepers: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._begun = self._ended = 0

    def now(self) -> StatusSnapshot:
        """As of the last look, and what was added here since."""
        with self._lock:
            ready, delayed = self._added
            return self._seen._replace(ready=self._seen.ready + ready, delayed=self._seen.delayed + delayed)

    # -- what this process adds

    def add_started(self) -> None:
        with self._lock:
            self._begun += 1

    def add_finished(self, tasks: Sequence[NewTask], answers: Sequence[Added]) -> None:
        """No answers: it went wrong. If it was stored all the same, the next look tells."""
        now = self._clock.now() + self._clock.wall_clock_jump()
        fresh = [task for task, answer in zip(tasks, answers, strict=False) if answer.fresh]
        ready = sum(task.lane is None and (task.after <= 0 if task.at is None else task.at <= now) for task in fresh)
        with self._lock:
            self._ended += 1
            self._added = (self._added[0] + ready, self._added[1] + len(fresh) - ready)

    # -- looking

    async def refresh(self, store: Store) -> StatusSnapshot:
        with self._lock:
            self._looks += 1
            number, begun, began = self._looks, self._begun, time.monotonic()
            alone = begun == self._ended
        schedules = await store.schedules()
        counts = {"scheduled": 0, "ready": 0, "parked": 0}
        for (_, state), count in (await store.tally()).items():
            if state in counts:
                counts[state] += count
        enabled = sum(not schedule.paused for schedule in schedules)
        seen = StatusSnapshot(counts["ready"] + counts["parked"], counts["scheduled"], len(schedules), enabled)
        with self._lock:
            alone = alone and begun == self._begun
            if number > self._counts and (alone or began - self._at > _OLD):
                self._seen, self._added, self._at, self._counts = seen, (0, 0), began, number
        if not alone:
            self.mark_stale()
        return seen

    async def look_now(self, store: Store) -> None:
        """Right when this returns, unless the store takes too long: then a later look will be."""
        with suppress(StoreError, TimeoutError):  # whoever adds or works is told what is wrong with the store
            async with asyncio.timeout(_PATIENCE):
                await self.refresh(store)

    async def run(self, store: Store) -> None:
        """Looks whenever what it saw is stale, on this loop, until it is cancelled."""
        keeper = (asyncio.get_running_loop(), asyncio.Event())
        self._keepers.append(keeper)
        try:
            while True:
                await keeper[1].wait()
                keeper[1].clear()
                began = time.monotonic()
                try:
                    await self.refresh(store)
                except StoreError:
                    pass  # whoever adds or works is told
                except Exception as error:  # noqa: BLE001 - told; what was seen last stays
                    self._logs.store_failed("counting", error)
                await asyncio.sleep(pause_after(time.monotonic() - began))
        finally:
            self._keepers.remove(keeper)

    def mark_stale(self) -> bool:
        """Something may have moved: look again, soon. From any thread; False: nobody here can."""
        for loop, event in reversed(self._keepers):
            if event.is_set():
                return True
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # closed without having been told
                continue
            return True
        return False


def pause_after(took: float) -> float:
    """Seconds until the next look: fifty times what the last one took, since there may be thousands of schedules to
    read; but one that only waited its turn is no reason to be blind for long.

    >>> pause_after(0.0005), pause_after(0.01), pause_after(4)
    (0.1, 0.5, 2.0)
    """
    return min(max(0.1, 50 * took), 2.0)
