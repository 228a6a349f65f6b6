"""The program of a worker process: user code, one app, one event loop, and reports to the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import fnmatch
import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from types import FrameType
from typing import Any, TypeAlias

import msgspec

from onthedot import App, OnTheDotError, StoreUnavailable
from onthedot.model.component_names import COMPONENT_KINDS
from onthedot.model.executor_names import ASYNC, PROCESS, THREAD
from onthedot.model.figures import Figures
from onthedot.observability import log_format
from onthedot.observability.meter import Meter
from onthedot.runtime.config import RuntimeConfig
from onthedot.runtime.settings import store_url
from onthedot.stores.schemes import absolute
from onthedot.supervisor.app_loader import import_included, load_app
from onthedot.supervisor.banner import banner_line
from onthedot.supervisor.due_tasks import DueTasks
from onthedot.supervisor.exit_codes import STORE, CommandError, exit_code_for
from onthedot.supervisor.fleet_page import StoreSpec
from onthedot.supervisor.messages import LaunchOptions, ParentChannel, WorkerReport
from onthedot.supervisor.worker_figures import WorkerFigures

PageBeside: TypeAlias = Callable[[App[Any], int], contextlib.AbstractAsyncContextManager[None]]
"""Serves the page of an app on the socket with this number."""
_REPORT_INTERVAL = 1.0  # seconds
_MAX_ERROR = 8000  # characters
_WAIT_PAUSE = 0.5  # seconds between two attempts to reach the store
_WAIT_LOG_INTERVAL = 10.0  # seconds
_BURST_EVENTS = 5.0  # seconds that --burst waits for the next event to be moved


def run_child(fd: int, options: str, page: PageBeside | None = None) -> int:
    """Run a worker until it is stopped.

    fd: the socket to the supervisor; options: LaunchOptions as JSON
    page: serves the page of the app on a socket while the worker runs
    """
    signal.signal(signal.SIGINT, _ignore)
    faulthandler.enable()  # writes the stacks if the process crashes, or is aborted because it is blocked
    config = msgspec.json.decode(options, type=LaunchOptions)
    parent = ParentChannel(fd)
    try:
        app = load_app(config.app)
        log_format.configure(config.log_format, config.log_level, app.runtime.logs.root)
        app.runtime.use(_configured(app, config, parent))
        parent.store = lambda: (app.runtime.url, app.name)
        with asyncio.Runner(loop_factory=_event_loop) as runner:
            return runner.run(WorkerMain(app, config, parent, page).run())
    except OnTheDotError as error:  # reported once by the supervisor, not by each process
        parent.send(WorkerReport(error=str(error)[:_MAX_ERROR]))
        return exit_code_for(error)


def _event_loop() -> asyncio.AbstractEventLoop:
    """That of uvloop if it is installed (extra `fast`), else asyncio's."""
    try:
        uvloop: Any = import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _ignore(number: int, frame: FrameType | None) -> None:
    """The supervisor handles Ctrl+C. Not SIG_IGN: programs that tasks start would inherit it."""


def _configured(app: App[Any], options: LaunchOptions, parent: ParentChannel) -> RuntimeConfig:
    """The command line takes precedence over the code."""
    runtime = app.runtime
    without = frozenset(options.without if options.components else COMPONENT_KINDS)
    config = replace(runtime.config, heartbeat_delegate=parent, session_watcher=parent, without=without)
    if options.store is not None:
        url = os.environ["ONTHEDOT_STORE"] = store_url(options.store)
        config = replace(config, url=url)
    if options.concurrency is not None:
        count = options.concurrency
        slots = {ASYNC: count, THREAD: count, PROCESS: min(count, config.slots[PROCESS])}
        config = replace(config, slots=slots, one_pool=count == 1)
    import_included(app)
    if options.only:
        config = replace(config, only_sources=_matching(runtime.sources.known, options.only))
    return config


def _matching(names: frozenset[str], globs: tuple[str, ...]) -> frozenset[str]:
    found = frozenset(name for name in names if any(fnmatch.fnmatchcase(name, glob) for glob in globs))
    if not found:
        raise CommandError(f"--only {' '.join(globs)}: no such source; there are {', '.join(sorted(names)) or 'none'}")
    return found


class WorkerMain:
    """Starts the app's worker, reports to the supervisor, and stops at a signal."""

    def __init__(
        self, app: App[Any], config: LaunchOptions, parent: ParentChannel, page: PageBeside | None = None
    ) -> None:
        self._app = app
        self._runtime = app.runtime
        self._config = config
        self._parent = parent
        self._page = page
        self._stop = asyncio.Event()
        self._figures: WorkerFigures | None = None
        if config.metrics_sources:
            self._figures = WorkerFigures(app.runtime, Meter(config.metrics_sources))

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        host = self._runtime.host
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        self._parent.watch(lambda: loop.call_soon_threadsafe(self._cancel_running))
        if not await self._connect():
            self._parent.send(WorkerReport(finished=True))
            return 0
        try:
            await host.start("main")
        finally:
            await self._runtime.portal.disconnect()  # unless it could not start, the worker keeps the client open
        stores = StoreSpec(self._runtime.url, self._app.name, absolute(self._runtime.config.events.outbox or ""))
        self._parent.send(WorkerReport(ready=await banner_line(self._app), stores=stores))
        background = [asyncio.create_task(self._report())]
        if self._figures is not None:
            background.append(asyncio.create_task(self._figures.watch()))
        if self._config.burst:
            background.append(asyncio.create_task(self._stop_when_idle()))
        async with self._page_of_a_private_store():
            while host.status == "running" and not self._stop.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), 1)
        fatal = host.status == "stopped"
        await host.stop(self._config.stop_timeout)
        for task in background:
            task.cancel()
        self._parent.send(WorkerReport(finished=not fatal, figures=self._read_figures()))
        return STORE if fatal else 0

    async def _connect(self) -> bool:
        """Waits for a store that cannot be reached, up to `wait_for_store`. False: stopped meanwhile."""
        give_up_at = time.monotonic() + self._config.wait_for_store
        logged_at = -math.inf
        while not self._stop.is_set():
            try:
                await self._runtime.portal.connect()
            except StoreUnavailable as error:
                now = time.monotonic()
                if now >= give_up_at:
                    raise
                if now - logged_at >= _WAIT_LOG_INTERVAL:
                    logged_at = now
                    self._runtime.logs.store.warning("waiting %.0f s more for the store: %s", give_up_at - now, error)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), min(_WAIT_PAUSE, give_up_at - now))
            else:
                return True
        return False

    def _page_of_a_private_store(self) -> contextlib.AbstractAsyncContextManager[None]:
        """The page, if `dev` wants one and only this process sees its tasks; otherwise `dev` serves it."""
        fd = self._config.page_fd
        if fd < 0:
            return contextlib.nullcontext()
        if self._page is None or self._runtime.store.traits.shared:
            os.close(fd)
            return contextlib.nullcontext()
        return self._page(self._app, fd)

    def _cancel_running(self) -> None:
        self._stop.set()
        asyncio.get_running_loop().call_later(0.05, self._runtime.cancel_running)  # after the stop has begun

    async def _report(self) -> None:
        """From the event loop: if user code blocks it, the supervisor gets no reports and notices."""
        while True:
            worker = self._runtime.worker
            if worker is not None:
                self._parent.send(
                    WorkerReport(
                        turns=worker.turns,
                        stopping=self._runtime.host.status == "stopping",
                        max_turn_gap=max(60.0, 3 * self._runtime.config.poll_interval),
                        figures=self._read_figures(),
                    )
                )
            await asyncio.sleep(_REPORT_INTERVAL)

    def _read_figures(self) -> Figures | None:
        return None if self._figures is None else self._figures.read()

    async def _stop_when_idle(self) -> None:
        """--burst: stop when no task that may run is due, none runs here, and no event of this app is left to move.

        It looks twice: a task that runs between the look at the events and the look at the tasks may publish one more.
        """
        moved = -1  # events, at the last look
        while (worker := self._runtime.worker) is not None:
            await worker.idle.wait()
            await self._move_events()
            was_idle = worker.idle.is_set()
            due = await self._due_tasks()
            if not (was_idle and worker.idle.is_set()) or due.runnable:
                moved = -1
                await asyncio.sleep(0.1)
            elif moved == self._runtime.components.event_count:
                due.report_left(self._runtime.logs)
                self._stop.set()
                return
            else:
                moved = self._runtime.components.event_count

    async def _move_events(self) -> None:
        """Returns when nothing is left to do, or the bus does not answer."""
        components = self._runtime.components
        before = -1
        while before != components.event_count:
            before = components.event_count
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BURST_EVENTS):
                    await components.run_until_idle()
                    return

    async def _due_tasks(self) -> DueTasks:
        limits = await self._runtime.store.limits()
        paused = {limit.name for limit in limits if limit.paused}
        return DueTasks(await self._runtime.store.tally(), self._runtime.sources.known, paused)
