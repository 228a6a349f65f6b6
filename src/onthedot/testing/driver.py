"""Drives a worker by a manual clock, from alarm to alarm."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any, TypeVar

from msgspec.structs import replace

from onthedot.client.client import ClientConfig, StoreClient
from onthedot.client.stream_reader import StreamReader
from onthedot.clock.durations import DAY
from onthedot.clock.epoch import from_ms
from onthedot.clock.manual import ManualClock
from onthedot.errors import SchedulerStateError
from onthedot.runtime.runtime import Runtime
from onthedot.schedules.definition import resolve_rule
from onthedot.schedules.stored_rule import after_resume, decode_rule
from onthedot.stores.contract import ENDED, ChangeEntry, Lease, Record, Store
from onthedot.testing.assertions import call_text

T = TypeVar("T")

_FAR = 50.0 * 365 * DAY  # ms: no alarm is that far ahead, but the lease of a session is
_ALL = 10**9  # transitions of a page
_MAX_IDLE = 0.5  # real seconds that a test which waits for a task gets to run it, as in gather(handle, test.advance(5))


@dataclass(eq=False)
class DriverLimits:
    """How long a test waits in real time, and how many runs it takes for endless."""

    patience: float = 1.0
    give_up: float = 10.0
    most_runs: int = 10_000


class BoundedClient(StoreClient):
    """A client whose waits end: a test that waits for a task without running it would hang.

    idle_for: returns the real seconds since when no worker runs
    """

    def __init__(self, store: Store, config: ClientConfig, limits: DriverLimits, idle_for: Callable[[], float]) -> None:
        super().__init__(store, config)
        self._limits = limits
        self._idle_for = idle_for

    async def wait_for_end(self, uuid: str, timeout: float | None) -> Record:
        if timeout is None:
            timeout = self._limits.give_up
        waiting = super().wait_for_end(uuid, timeout)
        return await self._bounded(waiting, f"task {uuid} has not ended, and nothing runs now")

    async def read_items(self, reader: StreamReader) -> None:
        reader.look_again()  # the clock may have been set beyond the lease of the subscription, which ends the hints
        waiting = asyncio.wait_for(super().read_items(reader), self._limits.give_up)
        await self._bounded(waiting, f"task {reader.uuid} has no new items, and nothing runs now")

    async def _bounded(self, coroutine: Coroutine[Any, Any, T], problem: str) -> T:
        waiting = asyncio.ensure_future(coroutine)
        try:
            while True:
                await asyncio.wait([waiting], timeout=_MAX_IDLE)
                if waiting.done() or self._idle_for() >= _MAX_IDLE:
                    break
            if waiting.done():
                return await waiting
        except TimeoutError as error:
            problem = str(error) or problem
        finally:
            waiting.cancel()
        how = "in a test tasks run inside advance(), run_until_idle() and drain(): call one of them first"
        raise TimeoutError(f"{problem}; {how}")  # a note would get lost on the way from another thread


class ClockDriver:
    """One call of ``advance`` or ``drain``: it sets the clock and waits in real time for running tasks."""

    def __init__(self, runtime: Runtime, clock: ManualClock, limits: DriverLimits) -> None:
        assert runtime.worker is not None
        self._worker = runtime.worker
        self._components = runtime.components
        self._event_count = 0  # events, up to the last look
        self._store = runtime.store
        self._clock = clock
        self._limits = limits
        self._cursor = ""
        self._max_runs = 0
        self._runs_now = 0  # at the current time of the clock
        self._waiting_since: dict[Lease, float] = {}  # real time since when a run has not moved
        self.runs: Counter[str] = Counter()  # by source
        self.failed: list[str] = []
        self._worker.last_error = None
        self._worker.stop_purging()  # a test asserts on ended tasks

    async def start(self) -> None:
        self._cursor = (await self._store.changes("", 1)).cursor
        self._max_runs = self._limits.most_runs + await self._alive()
        self._set_clock(ceil(self._clock.now()))  # whole milliseconds, rounded up, as due times are

    async def until(self, target: int) -> None:
        while True:
            idle = await self._run_due()
            due = self._next_alarm()
            if due is not None and due <= target:
                self._set_clock(due)
                self._runs_now = 0
            elif idle:
                self._set_clock(target)
                return

    async def to_the_end(self) -> None:
        while True:
            idle = await self._run_due()
            due = self._next_alarm()
            if idle and (due is None or not await self._alive()):
                return
            if due is not None:
                self._set_clock(due)

    async def _run_due(self) -> bool:
        """Runs due tasks and moves events. Returns False if a task runs that has not moved for a while."""
        worker = self._worker
        while True:
            worker.idle.clear()
            worker.recheck()  # and again after a turn that changed something
            try:
                async with asyncio.timeout(self._limits.patience):
                    await worker.idle.wait()
                    await self._components.run_until_idle()
            except TimeoutError:
                self._check_runs()
            if worker.last_error is not None:
                raise worker.last_error
            if not await self._has_changed():
                return worker.idle.is_set()

    def _check_runs(self) -> None:
        now = time.monotonic()
        runs = {run.lease: run for run in self._worker.runs if not run.ended}
        self._waiting_since = {lease: self._waiting_since.get(lease, now - self._limits.patience) for lease in runs}
        stuck = [
            call_text(runs[lease].record.source, runs[lease].arguments)
            for lease, since in self._waiting_since.items()
            if now - since >= self._limits.give_up
        ]
        if stuck:
            text = f"still running after {self._limits.give_up:g} real seconds: {', '.join(stuck)}"
            if (due := self._next_alarm()) is not None:
                text += f". The next alarm is at {from_ms(due)}: advance() that far in one call"
            raise TimeoutError(text)

    async def _has_changed(self) -> bool:
        before = (self._cursor, self._event_count)
        self._event_count = self._components.event_count
        while (page := await self._store.changes(self._cursor, 1000, resolve=_ALL)).entries:
            self._cursor = page.cursor
            for entry in page.entries:
                self._count(entry)
        if self._runs_now > self._max_runs:
            source, times = self.runs.most_common(1)[0]
            raise RuntimeError(
                f"{self._runs_now} runs and no end, {times} of {source}: does it add, retry or snooze itself for ever? "
                f"If not, allow more: most_runs is {self._limits.most_runs}"
            )
        return (self._cursor, self._event_count) != before

    def _count(self, entry: ChangeEntry) -> None:
        for transition in entry.transitions:
            if transition.state == "running":
                self.runs[transition.source] += 1
                self._runs_now += 1
            elif transition.state == "failed":
                self.failed.append(transition.uuid)

    async def _alive(self) -> int:
        return sum(count for (_, state), count in (await self._store.tally()).items() if state not in ENDED)

    def _next_alarm(self) -> int | None:
        """The next alarm, in whole milliseconds: that of a limit may lie between two."""
        now = self._clock.now()
        due = self._clock.next_timer()
        if due is None or due > now + _FAR:
            return None
        return max(ceil(due), int(now) + 1)

    def _set_clock(self, moment: int) -> None:
        self._clock.advance(moment - self._clock.now())


@asynccontextmanager
async def drive(runtime: Runtime, clock: ManualClock, limits: DriverLimits) -> AsyncGenerator[ClockDriver, None]:
    """Drives the worker of this loop; if none runs, one that lives as long as the block."""
    host = runtime.host
    own = host.status == "stopped"
    if not own and host.loop is not asyncio.get_running_loop():
        raise SchedulerStateError(f"app {runtime.name!r} works on another event loop: `.sync` drives it there")
    before = set(threading.enumerate())
    if own:
        await host.start()
    try:
        driver = ClockDriver(runtime, clock, limits)
        await driver.start()
        yield driver
    finally:
        if own:
            await _stop(runtime, before)


async def _stop(runtime: Runtime, before: set[threading.Thread]) -> None:
    """Stops the worker and leaves nothing: no task on this loop, and no thread but one that does not return."""
    worker = runtime.worker
    assert worker is not None
    await runtime.host.stop(0)
    waiting = {run.serving_task for run in worker.runs if run.serving_task is not None}
    for server in waiting:
        server.cancel()
    if waiting:
        await asyncio.wait(waiting)
    ours = re.compile(rf"onthedot-{re.escape(runtime.name)}-\d+")
    deadline = time.monotonic() + (0.05 if waiting else 1.0)
    for thread in set(threading.enumerate()) - before:
        if ours.fullmatch(thread.name):
            thread.join(max(0.0, deadline - time.monotonic()))


@asynccontextmanager
async def schedules_paused(runtime: Runtime) -> AsyncGenerator[None, None]:
    """Pauses all schedules; windows that pass meanwhile are not caught up."""
    store = runtime.store
    alive = [each for each in (await store.schedules()) if not each.paused]
    names = {each.name for each in alive}
    await store.put_schedules([replace(each, paused=True) for each in alive])
    try:
        yield
    finally:
        paused = [each for each in (await store.schedules()) if each.paused and each.name in names]
        for each in paused:
            after, passed = after_resume(
                each, resolve_rule(each.name, decode_rule(each), runtime.schedules), runtime.clock.now()
            )
            await store.put_schedules([after])
            runtime.logs.windows_skipped(each.name, "paused", passed)
