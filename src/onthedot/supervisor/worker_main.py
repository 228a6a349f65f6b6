"""Inside a worker process: user code, one app, one event loop. It tells its supervisor how it gets on."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import fnmatch
import importlib
import os
import signal
import sys
from types import FrameType
from typing import Any

import click
import msgspec

from onthedot import App, OnTheDotError
from onthedot.cli import exit_code
from onthedot.cli.options import CliError
from onthedot.observability import log_format
from onthedot.runtime.settings import store_url
from onthedot.supervisor.app_loader import load_app
from onthedot.supervisor.banner import banner_line
from onthedot.supervisor.messages import LaunchOptions, ParentChannel, WorkerReport

_BEAT = 1.0  # seconds


@click.command("_child", hidden=True)
@click.argument("fd", type=int)
@click.argument("said")
def child(fd: int, said: str) -> None:
    signal.signal(signal.SIGINT, _heard)
    faulthandler.enable()  # if it blocks, or crashes, it says where
    config, parent = msgspec.json.decode(said, type=LaunchOptions), ParentChannel(fd)
    try:
        app = load_app(config.app)
        log_format.configure(config.log_format, app)
        _apply(app, config)
        parent.store = lambda: (str(app._runtime.url), app.name)  # as soon as it has one
        app._runtime.heartbeat_delegate = parent
        code = asyncio.run(WorkerMain(app, config, parent).run())
    except (CliError, OnTheDotError) as error:  # told once, by the supervisor, and not by each child
        parent.tell(WorkerReport(error=(error.message if isinstance(error, CliError) else str(error))[:8000]))
        code = error.exit_code if isinstance(error, CliError) else exit_code(error)
    sys.exit(code)


def _heard(number: int, frame: FrameType | None) -> None:
    """Ctrl+C is the supervisor's to judge. Not SIG_IGN: programs that tasks start would inherit it."""


def _apply(app: App[Any], config: LaunchOptions) -> None:
    """What the command line says goes before what the code says."""
    runtime = app._runtime
    if config.store is not None:
        runtime.url = os.environ["ONTHEDOT_STORE"] = store_url(config.store)
    if config.concurrency is not None:
        each = config.concurrency
        runtime.slots.update({"async": each, "thread": each, "process": min(each, runtime.slots["process"])})
        runtime.one_pool = each == 1
    for module in runtime.include:
        importlib.import_module(module)
    if config.only:
        _keep_only(app, config.only)


def _keep_only(app: App[Any], globs: tuple[str, ...]) -> None:
    names = [name for name, _ in app._runtime.sources.items()]
    for name in names:
        if not any(fnmatch.fnmatchcase(name, glob) for glob in globs):
            app._runtime.sources.remove(name)
            app._runtime.schedules.pop(name, None)
    if not app._runtime.sources.known:
        raise CliError(f"--only {' '.join(globs)}: no such source; there are {', '.join(sorted(names)) or 'none'}")


class WorkerMain:
    def __init__(self, app: App[Any], config: LaunchOptions, parent: ParentChannel) -> None:
        self._app, self._runtime, self._config, self._parent = app, app._runtime, config, parent
        self._asked = asyncio.Event()

    async def run(self) -> int:
        loop, service = asyncio.get_running_loop(), self._runtime.service
        loop.add_signal_handler(signal.SIGTERM, self._asked.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        self._parent.watch(lambda: loop.call_soon_threadsafe(self._hurry))
        await service.start("main")
        self._parent.tell(WorkerReport(ready=await banner_line(self._app)))
        chores = [asyncio.create_task(self._beat())]
        if self._config.burst:
            chores.append(asyncio.create_task(self._until_done()))
        while service.status == "running" and not self._asked.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), 1)
        fatal = service.status == "stopped"
        await service.stop(self._config.stop_timeout)
        for chore in chores:
            chore.cancel()
        self._parent.tell(WorkerReport(over=not fatal))
        return 3 if fatal else 0

    def _hurry(self) -> None:
        self._asked.set()
        asyncio.get_running_loop().call_later(0.05, self._runtime._cancel_running)  # after the stop has begun

    async def _beat(self) -> None:
        """From the event loop: if user code blocks it, the supervisor hears nothing, and knows."""
        while True:
            worker = self._runtime.worker
            if worker is not None:
                patience = max(60.0, 3 * self._runtime.poll_interval)
                stopping = self._runtime.service.status == "stopping"
                self._parent.tell(WorkerReport(turns=worker._number, stopping=stopping, patience=patience))
            await asyncio.sleep(_BEAT)

    async def _until_done(self) -> None:
        """--burst: until nothing that may run is due, and nothing runs here."""
        while (worker := self._runtime.worker) is not None:
            await worker.idle.wait()
            limits = await self._runtime.store.limits()
            paused = {limit.name for limit in limits if limit.paused}
            tally = await self._runtime.store.tally()
            due = [source for (source, state), count in tally.items() if count and state in ("ready", "parked")]
            if worker.idle.is_set() and not (self._runtime.sources.known & set(due)) - paused:
                self._asked.set()
                return
            await asyncio.sleep(0.1)
