"""Drives a worker by a manual clock, from alarm to alarm: what is below ``onthedot.testing``."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import ceil

from msgspec.structs import replace

from onthedot.client.client import ClientConfig, StoreClient
from onthedot.clock.epoch import from_ms
from onthedot.clock.manual import ManualClock
from onthedot.errors import SchedulerStateError
from onthedot.runtime.runtime import Runtime
from onthedot.schedules.definition import resolve_rule
from onthedot.schedules.stored_rule import after_resume, decode_rule
from onthedot.stores.contract import ChangeEntry, Lease, Record, Store
from onthedot.testing.assertions import shown

_AGES = 50 * 365 * 86_400_000.0  # ms: no alarm is that far ahead, but a session's lease is
_ENDED = ("succeeded", "failed", "cancelled")


@dataclass(eq=False)
class DriverLimits:
    """How long is waited, really, and how much is too much."""

    patience: float = 1.0
    give_up: float = 10.0
    most_runs: int = 10_000


class BoundedClient(StoreClient):
    """Does not wait for ever for a task that nobody runs."""

    def __init__(self, store: Store, config: ClientConfig, limits: DriverLimits) -> None:
        super().__init__(store, config)
        self._limits = limits

    async def wait_for_end(self, uuid: str, timeout: float | None) -> Record:
        try:
            return await super().wait_for_end(uuid, self._limits.give_up if timeout is None else timeout)
        except TimeoutError as error:
            how = "in a test tasks run inside advance(), run_until_idle() and drain(): call one of them first"
            raise TimeoutError(f"{error}; {how}") from None  # a note would not come over from another thread


class ClockDriver:
    """One call of a verb: it turns the clock and waits, really, for what runs."""

    def __init__(self, runtime: Runtime, clock: ManualClock, pace: DriverLimits) -> None:
        assert runtime.worker is not None
        self._worker, self._store, self._clock, self._pace = runtime.worker, runtime.store, clock, pace
        self._cursor = ""
        self._most = 0
        self._here = 0  # runs at this moment
        self._since: dict[Lease, float] = {}  # runs that wait for something, and since when
        self.runs: Counter[str] = Counter()  # by source
        self.failed: list[str] = []
        self._worker.last_error = None
        self._worker.stop_purging()  # a test asserts on ended tasks

    async def begin(self) -> None:
        self._cursor = (await self._store.changes("", 1)).cursor
        self._most = self._pace.most_runs + await self._left()
        self._turn(ceil(self._clock.now()))  # due times are whole milliseconds, rounded up: so is the clock from here

    async def until(self, target: int) -> None:
        while True:
            idle = await self._settle()
            due = self._next()
            if due is not None and due <= target:
                self._turn(due)
                self._here = 0
            elif idle:
                self._turn(target)
                return

    async def to_the_end(self) -> None:
        while True:
            idle = await self._settle()
            due = self._next()
            if idle and (due is None or not await self._left()):
                return
            if due is not None:
                self._turn(due)

    async def _settle(self) -> bool:
        """Runs what is due. False: something runs that has not moved for a while."""
        worker = self._worker
        while True:
            worker.idle.clear()
            worker.recheck()  # and once more after a look that moved something
            try:
                async with asyncio.timeout(self._pace.patience):
                    await worker.idle.wait()
            except TimeoutError:
                self._check_runs()
            if worker.last_error is not None:
                raise worker.last_error
            if not await self._moved():
                return worker.idle.is_set()

    def _check_runs(self) -> None:
        now = time.monotonic()
        runs = {run.lease: run for run in self._worker.runs if not run.ended}
        self._since = {lease: self._since.get(lease, now - self._pace.patience) for lease in runs}
        stuck = [
            shown(runs[lease].record.source, runs[lease].arguments)
            for lease, since in self._since.items()
            if now - since >= self._pace.give_up
        ]
        if stuck:
            due = self._next()
            later = "" if due is None else f". The next alarm is at {from_ms(due)}: advance() that far in one call"
            raise TimeoutError(f"still running after {self._pace.give_up:g} real seconds: {', '.join(stuck)}{later}")

    async def _moved(self) -> bool:
        before = self._cursor
        while (page := await self._store.changes(self._cursor, 1000)).entries:
            self._cursor = page.cursor
            for entry in page.entries:
                self._count(entry)
        if self._here > self._most:
            source, times = self.runs.most_common(1)[0]
            raise RuntimeError(
                f"{self._here} runs and no end, {times} of {source}: does it add, retry or snooze itself for ever? "
                f"If not, allow more: most_runs is {self._pace.most_runs}"
            )
        return self._cursor != before

    def _count(self, entry: ChangeEntry) -> None:
        for transition in entry.transitions:
            uuid, source, state = transition.uuid, transition.source, transition.state
            if state == "running":
                self.runs[source] += 1
                self._here += 1
            elif state == "failed":
                self.failed.append(uuid)

    async def _left(self) -> int:
        return sum(count for (_, state), count in (await self._store.tally()).items() if state not in _ENDED)

    def _next(self) -> int | None:
        """The next alarm, in whole milliseconds: a limit's may lie between two."""
        now, due = self._clock.now(), self._clock.next_timer()
        return None if due is None or due > now + _AGES else max(ceil(due), int(now) + 1)

    def _turn(self, moment: int) -> None:
        self._clock.advance(moment - self._clock.now())


@asynccontextmanager
async def drive(runtime: Runtime, clock: ManualClock, pace: DriverLimits) -> AsyncGenerator[ClockDriver, None]:
    """With a worker that lives as long as the block does, or with the one that works on this loop already."""
    service = runtime.host
    own = service.status == "stopped"
    if not own and service.loop is not asyncio.get_running_loop():
        raise SchedulerStateError(f"app {runtime.name!r} works on another event loop: `.sync` drives it there")
    before = set(threading.enumerate())
    if own:
        await service.start()
    try:
        drive = ClockDriver(runtime, clock, pace)
        await drive.begin()
        yield drive
    finally:
        if own:
            await _stop(runtime, before)


async def _stop(runtime: Runtime, before: set[threading.Thread]) -> None:
    """Nothing is left: no task on this loop, and no thread but one that will not return."""
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
    """No schedule fires; windows that pass meanwhile are not caught up."""
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
