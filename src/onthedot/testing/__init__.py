"""Tests without waiting: an app on a memory store, with a clock that the test sets.

Tasks go through store, codec and engine as in production; only the clock differs. A worker runs, within ``lifespan``,
inside each call of ``advance``, ``run_until_idle`` and ``drain``; in between nothing runs.
"""

from __future__ import annotations

import asyncio
import time
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
from onthedot.events.dead_letters import DeadLetter
from onthedot.events.event import Event
from onthedot.events.settings import STORE_BUS
from onthedot.model.failures import error_from_record
from onthedot.model.settings_checks import YEAR
from onthedot.model.task import TaskInfo, TaskState
from onthedot.testing.agents import dead_letters, deliver
from onthedot.testing.assertions import AddedTasks, call_text
from onthedot.testing.driver import BoundedClient, ClockDriver, DriverLimits, drive, schedules_paused
from onthedot.testing.published_events import PublishedEvents

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
    """An app under test: on ``memory://``, with a clock that stands still until the test sets it.

    Args:
        app: The app; outside of the ``with`` block it is unchanged.
        clock: By default one that starts on 2026-01-01 UTC.
        patience: Real seconds after which a run that has not moved is taken to wait for the clock, which goes on: it
            may wait for its timeout, or for a task that is due later.
        give_up: Real seconds after which a task that still runs is a TimeoutError.
        most_runs: Runs at one moment, or in one ``drain()``, beyond the tasks that were pending, that are taken for
            endless.

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

    In async tests: ``await test.advance(days=3)``. The three methods return the number of runs, retries included.
    What a task raises stays in the task, as in production; ``failed()`` returns such tasks. ``raise_failures=True``
    raises the first failure of the call as TaskFailed, with its traceback, after all other tasks have run.

    Time stands still while tasks run. Ended tasks are kept however far the clock goes, until ``app.purge()``; their
    results expire as in production.
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
        self._idle_since = time.monotonic()

    def __enter__(self) -> TestApp:
        config = replace(
            self._runtime.config,
            url="memory://",
            clock=self.clock,
            keep_pending_on_stop=True,
            poll_interval=inf,  # so that every timer is an alarm
            events=replace(self._runtime.config.events, bus=STORE_BUS, outbox=None, keep_sent=YEAR),
            client_factory=partial(BoundedClient, limits=self, idle_for=self._idle_for),
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
        """Advances the clock from alarm to alarm: each task, retry and schedule runs at its time, in order.

        Args:
            seconds: Seconds or a timedelta.
            raise_failures: Whether to raise the first failure as TaskFailed.
            more: Added to it: ``weeks, days, hours, minutes, milliseconds``.
        """
        if more:
            seconds = (seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)) + timedelta(**more)
        ms = to_duration_ms(seconds, "advance()")
        async with self._driving(raise_failures) as drive:
            await drive.until(ceil(self.clock.now()) + ms)
        return drive.runs.total()

    async def run_until_idle(self, *, raise_failures: bool = False) -> int:
        """Runs all due tasks, and what they add; the clock stands still.

        Args:
            raise_failures: Whether to raise the first failure as TaskFailed.
        """
        return await self.advance(raise_failures=raise_failures)

    async def drain(self, *, raise_failures: bool = False) -> int:
        """Runs all pending tasks, and what they add; the clock goes from alarm to alarm until none is left.

        Schedules never end, so they are paused meanwhile: what they have added runs, but windows that the clock passes
        add nothing and are not caught up later. Tasks of a paused source stay pending.

        Args:
            raise_failures: Whether to raise the first failure as TaskFailed.
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
            self._idle_since = time.monotonic()
        if raise_failures:
            await self._raise(driver.failed)

    def _idle_for(self) -> float:
        if self._driven or self._runtime.host.status != "stopped":
            return 0.0
        return time.monotonic() - self._idle_since

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
        """Returns the time of the clock."""
        return self.clock.moment()

    def tasks(self, task: object = None, /, *, state: str | None = None) -> list[TaskInfo]:
        """Returns tasks in the order of adding, ended ones too.

        Args:
            task: Only those of this function, consumer or name.
            state: Only those in this state.
        """
        infos = self._added.all(None if task is None else self._added.source(task))
        return infos if state is None else [info for info in infos if info.state == TaskState(state)]

    def failed(self) -> list[TaskInfo]:
        """Returns failed tasks: ``.error`` is the last error, ``.errors`` has those of earlier attempts."""
        return self.tasks(state="failed")

    def assert_added(
        self, task: object, arguments: Mapping[str, Any] | None = None, /, *, times: int | None = None, **more: Any
    ) -> TaskInfo:
        """Asserts that such a task was added, whatever its state; returns the newest.

        Args:
            task: A function, a consumer or a name.
            arguments: Arguments whose names clash with those of this method.
            times: How many such tasks there must be; None: at least one.
            more: Some of its arguments; defaults count as given.

        ::

            test.assert_added(send, to="ann", times=1)
            test.assert_added(send, {"times": 3})
        """
        __tracebackhide__ = True
        source = self._added.source(task)
        wanted = {**(arguments or {}), **more}
        found = self._added.matching(source, wanted)
        if not found:
            raise AssertionError(f"{call_text(source, wanted)} was not added; {self._added.describe(source)}")
        if times is not None and len(found) != times:
            count = f"was added {len(found)} times, not {times}"
            raise AssertionError(f"{call_text(source, wanted)} {count}; {self._added.describe(source)}")
        return found[-1]

    def refute_added(self, task: object, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Asserts that no such task was added.

        Args:
            task: A function, a consumer or a name.
            arguments: Arguments whose names clash with those of this method.
            more: Some of its arguments; defaults count as given.
        """
        __tracebackhide__ = True
        source = self._added.source(task)
        wanted = {**(arguments or {}), **more}
        if self._added.matching(source, wanted):
            raise AssertionError(f"{call_text(source, wanted)} was added; {self._added.describe(source)}")

    # -- events

    @property
    def _published(self) -> PublishedEvents:
        self._check_entered()
        return PublishedEvents(self._runtime)

    def published(self, type: str | None = None) -> list[Event[Any]]:  # noqa: A002 - as the field of an event
        """Returns published events in the order of publishing, sent or not; without dead letters.

        Args:
            type: Only those of this type, as in ``"Shop.Order.Placed"``.
        """
        return self._published.of_type(type)

    def assert_published(
        self,
        type: str,  # noqa: A002
        payload: Mapping[str, Any] | None = None,
        /,
        *,
        times: int | None = None,
        **more: Any,
    ) -> Event[Any]:
        """Asserts that such an event was published; returns the newest.

        Args:
            type: Its type.
            payload: Fields of the payload whose names clash with those of this method.
            times: How many such events there must be; None: at least one.
            more: Some fields of its payload.

        ::

            test.assert_published("Shop.Order.Shipped", id=17, times=1)
        """
        __tracebackhide__ = True
        wanted = {**(payload or {}), **more}
        found = self._published.matching(type, wanted)
        if not found:
            raise AssertionError(f"{call_text(type, wanted)} was not published; {self._published.describe(type)}")
        if times is not None and len(found) != times:
            count = f"was published {len(found)} times, not {times}"
            raise AssertionError(f"{call_text(type, wanted)} {count}; {self._published.describe(type)}")
        return found[-1]

    def refute_published(
        self,
        type: str,  # noqa: A002
        payload: Mapping[str, Any] | None = None,
        /,
        **more: Any,
    ) -> None:
        """Asserts that no such event was published.

        Args:
            type: Its type.
            payload: Fields of the payload whose names clash with those of this method.
            more: Some fields of its payload.
        """
        __tracebackhide__ = True
        wanted = {**(payload or {}), **more}
        if self._published.matching(type, wanted):
            raise AssertionError(f"{call_text(type, wanted)} was published; {self._published.describe(type)}")

    # -- agents

    def deliver(self, event: Event[Any]) -> list[str]:
        """Gives an event to the agents of the app, as if it had been received from the bus.

        It returns the uuids of the tasks that handle it, one for each agent that does.

        Args:
            event: The event. The same one again is a copy, and handled once.
        """
        self._check_entered()
        return deliver(self._runtime, event)

    def dead_letters(self, agent: str) -> list[DeadLetter]:
        """Returns the dead letters of an agent, oldest first: where each came from, and why it failed.

        Args:
            agent: A name of the agent.
        """
        self._check_entered()
        return dead_letters(self._runtime, self.app.agents.canonical(agent))


class SyncTestApp:
    """The methods for tests that are not async: each runs an event loop in the current thread."""

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
        host = self._test.app.runtime.host
        if host.status != "stopped" and host.loop is not None:  # app.background(), or a web server under test
            return asyncio.run_coroutine_threadsafe(verb, host.loop).result()
        # With a factory, so that the event loop of the thread stays as it is.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(verb)
