"""Tests without waiting: an app on a memory store, and a clock that the test turns.

Tasks go through store, codec and engine as they do in production; only time is the test's. The worker lives inside each
call of ``advance``, ``run_until_idle`` and ``drain``, and ``lifespan`` with it: in between nothing is alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from math import ceil, inf
from typing import Any, TypedDict, TypeVar, Unpack

from onthedot.api.app import App
from onthedot.clock.durations import Duration, to_duration_ms
from onthedot.clock.manual import ManualClock
from onthedot.errors import SchedulerStateError
from onthedot.model.failures import error_from_record
from onthedot.model.task import TaskInfo, TaskState
from onthedot.testing.assertions import AddedTasks, shown
from onthedot.testing.driver import BoundedClient, ClockDriver, DriverLimits, drive, schedules_paused

__all__ = ["ManualClock", "TestApp"]

T = TypeVar("T")


class AdvanceArgs(TypedDict, total=False):
    """The other units of ``advance``."""

    weeks: float
    days: float
    hours: float
    minutes: float
    milliseconds: float


class TestApp(DriverLimits):
    """An app under test: on ``memory://``, by a clock that stands still until it is turned.

    >>> app = App("shop")
    >>> sent = []
    >>> @app.task
    ... def remind(name: str) -> None:
    ...     sent.append(name)
    >>> with TestApp(app) as test:
    ...     handle = remind.options(after=timedelta(days=3)).delay("bob")
    ...     test.sync.advance(days=2, hours=23), sent
    ...     test.sync.advance(hours=1), sent
    (0, [])
    (1, ['bob'])

    In async tests: ``await test.advance(days=3)``. The three verbs answer how many runs there were, retries included.
    What a task raises stays in the task, as it does in production: ``failed()`` tells. ``raise_failures=True`` raises
    the first failure of the call as TaskFailed, with its traceback, after all the rest has run.

    Time stands while tasks run. Three attributes say what is too much: a task that has not moved for `patience` real
    seconds is taken to wait for the clock (for its timeout, for a child that comes later), and the clock goes on; one
    that still runs after `give_up` real seconds is a TimeoutError; more than `most_runs` runs beyond what was waiting,
    at one moment or in one ``drain()``, are taken for endless. Ended tasks are kept however far the clock goes, until
    ``app.purge()``; their results expire as ever.
    """

    __test__ = False  # pytest: not a class of tests

    def __init__(
        self,
        app: App[Any],
        clock: ManualClock | None = None,
        *,
        patience: float = 1.0,
        give_up: float = 10.0,
        most_runs: int = 10_000,
    ) -> None:
        super().__init__(patience, give_up, most_runs)
        self.app = app
        self.clock: ManualClock = clock or ManualClock()
        self.sync: SyncTestApp = SyncTestApp(self)
        self._runtime = app.runtime
        self._override: AbstractContextManager[None] | None = None
        self._driven = False

    def __enter__(self) -> TestApp:
        config = replace(
            self._runtime.config,
            url="memory://",
            clock=self.clock,
            keep_pending_on_stop=True,
            poll_interval=inf,  # so that every timer is an alarm
            client_factory=partial(BoundedClient, limits=self),
        )
        override = self._runtime.override(config)
        override.__enter__()
        self._override = override
        return self

    def __exit__(self, *exc: object) -> None:
        override = self._override
        self._override = None
        if override is not None:
            override.__exit__(None, None, None)

    def __repr__(self) -> str:
        return f"<TestApp {self.app.name} at {self.now()}>"

    # -- running

    async def advance(self, seconds: Duration = 0, *, raise_failures: bool = False, **more: Unpack[AdvanceArgs]) -> int:
        """Turns the clock by seconds or a timedelta, and by ``weeks, days, hours, minutes, milliseconds``.

        It goes from alarm to alarm: each task, retry and schedule runs at its very moment, in order.
        """
        if more:
            seconds = (seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)) + timedelta(**more)
        ms = to_duration_ms(seconds, "advance()")
        async with self._driving(raise_failures) as drive:
            await drive.until(ceil(self.clock.now()) + ms)
        return drive.runs.total()

    async def run_until_idle(self, *, raise_failures: bool = False) -> int:
        """Runs all that is due now, and what that adds; the clock stands."""
        return await self.advance(raise_failures=raise_failures)

    async def drain(self, *, raise_failures: bool = False) -> int:
        """Runs every task there is, and what they add; the clock jumps from alarm to alarm until none is left.

        Schedules never end, so they stand still meanwhile, as if paused: what they had added runs, but windows that the
        clock passes over add nothing, and are not caught up later. Tasks of a paused source stay.
        """
        async with self._driving(raise_failures) as drive, schedules_paused(self._runtime):
            await drive.to_the_end()
        return drive.runs.total()

    @asynccontextmanager
    async def _driving(self, raise_failures: bool) -> AsyncGenerator[ClockDriver, None]:
        self._check_entered()
        if self._driven:
            raise SchedulerStateError("advance(), run_until_idle() or drain() is under way already: one at a time")
        self._driven = True
        try:
            async with drive(self._runtime, self.clock, self) as driver:
                yield driver
        finally:
            self._driven = False
        if raise_failures:
            await self._raise(driver.failed)

    async def _raise(self, uuids: Iterable[str]) -> None:
        found = await self._runtime.store.get(list(uuids))
        errors = [error_from_record(record) for record in found if record is not None and record.state == "failed"]
        if errors:
            for other in errors[1:]:
                errors[0].add_note(f"and {other}")
            raise errors[0]

    def _check_entered(self) -> None:
        if self._override is None:
            raise SchedulerStateError("write `with TestApp(app) as test: …`: outside of it, the app is the real one")

    # -- looking

    @property
    def _added(self) -> AddedTasks:
        self._check_entered()
        return AddedTasks(self._runtime)

    def now(self) -> datetime:
        """Where the clock stands."""
        return self.clock.moment()

    def tasks(self, task: object = None, /, *, state: str | None = None) -> list[TaskInfo]:
        """All tasks in the order of adding, ended ones too: of one function (or name), in one state."""
        infos = self._added.all(None if task is None else self._added.source(task))
        return infos if state is None else [info for info in infos if info.state == TaskState(state)]

    def failed(self) -> list[TaskInfo]:
        """Tasks that failed for good: ``.error`` says how, ``.errors`` has those of the attempts before."""
        return self.tasks(state="failed")

    def assert_added(
        self, task: object, arguments: Mapping[str, Any] | None = None, /, *, times: int | None = None, **more: Any
    ) -> TaskInfo:
        """Such a task was added, whatever has become of it; answers with the newest.

        Some of its arguments are enough; defaults count as given. One whose name clashes goes into a dict::

            test.assert_added(send, to="ann", times=1)
            test.assert_added(send, {"times": 3})
        """
        __tracebackhide__ = True
        source, wanted = self._added.source(task), {**(arguments or {}), **more}
        found = self._added.like(source, wanted)
        if not found or (times is not None and len(found) != times):
            count = "was not added" if not found else f"was added {len(found)} times, not {times}"
            raise AssertionError(f"{shown(source, wanted)} {count}; {self._added.told(source)}")
        return found[-1]

    def refute_added(self, task: object, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """No such task was added."""
        __tracebackhide__ = True
        source, wanted = self._added.source(task), {**(arguments or {}), **more}
        if self._added.like(source, wanted):
            raise AssertionError(f"{shown(source, wanted)} was added; {self._added.told(source)}")


class SyncTestApp:
    """The verbs for tests that are not async: each runs an event loop of its own, in this thread."""

    def __init__(self, test: TestApp) -> None:
        self._test = test

    def advance(self, seconds: Duration = 0, *, raise_failures: bool = False, **more: Unpack[AdvanceArgs]) -> int:
        return self._run(self._test.advance(seconds, raise_failures=raise_failures, **more))

    def run_until_idle(self, *, raise_failures: bool = False) -> int:
        return self._run(self._test.run_until_idle(raise_failures=raise_failures))

    def drain(self, *, raise_failures: bool = False) -> int:
        return self._run(self._test.drain(raise_failures=raise_failures))

    def _run(self, verb: Coroutine[Any, Any, T]) -> T:
        if asyncio._get_running_loop() is not None:
            verb.close()
            raise SchedulerStateError("an event loop is running here: write `await test.advance(…)`, without `.sync`")
        service = self._test.app.runtime.host
        if service.status != "stopped" and service.loop is not None:  # app.background(), or a web server under test
            return asyncio.run_coroutine_threadsafe(verb, service.loop).result()
        # With a factory, so that the thread's own event loop is not touched.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(verb)
