"""``onthedot dev``: one worker process, replaced when a file changes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from onthedot.cli.options import GlobalOptions, shared
from onthedot.cli.worker import app_of, require_unix
from onthedot.errors import DeclarationError, StoreError
from onthedot.observability.log_format import print_error, print_line
from onthedot.supervisor.app_loader import module_location
from onthedot.supervisor.exit_codes import STORE
from onthedot.supervisor.heartbeats import wait_for_reaps
from onthedot.supervisor.messages import LaunchOptions
from onthedot.supervisor.worker_process import START_TIMEOUT, WorkerProcess, describe_exit_code, signal_handlers

if TYPE_CHECKING:
    from onthedot.cli.dev_page import DevPage  # it needs the extra `web`

_HOST = "127.0.0.1"
_FIRST_PORT = 8123
_PORTS = 20  # that are tried
_STORE_PAUSE = 2.0  # seconds between two starts if the store cannot be used
_MIN_INTERVAL = 0.2  # seconds between two scans of the folder
_MAX_SHARE = 0.02  # of a core, for scans
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


@click.command()
@click.argument("app", required=False)
@shared("app", "store")
@click.option("--port", type=click.IntRange(0, 65_535), metavar="PORT",
              help="The port of the page; 0: any. [8123, or the next free one]")  # fmt: skip
@click.option("--no-page", is_flag=True, help="Do not serve the page.")
@click.option("--stop-timeout", type=click.FloatRange(0), metavar="SECONDS", default=5.0, show_default=True,
              help="Seconds that running tasks have when you save or stop; then they are requeued.")  # fmt: skip
@click.pass_obj
def dev(options: GlobalOptions, app: str | None, port: int | None, no_page: bool, stop_timeout: float) -> None:
    """Run the tasks of APP (app.py or module:app), serve their page, and reload when you save."""
    require_unix("dev")
    config = LaunchOptions(app_of(options, app), options.store, stop_timeout=stop_timeout, foreground=True)
    folder, _ = module_location(config.app.partition(":")[0])
    listener = None if no_page else page_listener(port)
    sys.exit(asyncio.run(_run(config, folder, listener)))


async def _run(config: LaunchOptions, folder: Path, listener: socket.socket | None) -> int:
    if listener is None:
        return await _Reloader(config, folder).run()
    from onthedot.cli.dev_page import DevPage

    with listener:
        async with DevPage(listener) as page:
            config = msgspec.structs.replace(config, page_fd=listener.fileno())
            return await _Reloader(config, folder, page).run()


def page_listener(port: int | None, first: int = _FIRST_PORT, tries: int = _PORTS) -> socket.socket | None:
    """The socket of the page: this port, else one of `tries` from `first` on. None: a line says why."""
    try:
        from onthedot.web.server import listen
    except ImportError:
        print_line("page: pip install 'onthedot[web]'")
        return None
    if port is not None:
        return listen(_HOST, port)
    try:
        return listen(_HOST, first, tries)
    except DeclarationError:
        print_line(f"page: no port from {first} to {first + tries - 1} is free; name one by --port")
        return None


class _Reloader:
    def __init__(self, config: LaunchOptions, folder: Path, page: DevPage | None = None) -> None:
        self._config = config
        self._folder = folder
        self._page = page
        self._stop = asyncio.Event()
        self._child: WorkerProcess | None = None
        self._retired: set[asyncio.Task[bool]] = set()

    async def run(self) -> int:
        files = python_files(self._folder)
        with signal_handlers(dict.fromkeys((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), self._on_stop)):
            if self._page is not None:
                print_line(f"page {self._page.address}")
            stop = asyncio.create_task(self._stop.wait())
            while not stop.done():
                running = asyncio.create_task(self._run_child())
                change = asyncio.create_task(wait_for_change(self._folder, files))
                await asyncio.wait([stop, change], return_when=asyncio.FIRST_COMPLETED)
                if not stop.done():
                    before = files
                    files = change.result()
                    name = next(name for name in {**files, **before} if files.get(name) != before.get(name))
                    print_line(f"{Path(name).relative_to(self._folder)} changed · reloading")
                for task in (change, running):
                    task.cancel()
                await asyncio.wait([change, running])
                self._retire()
            if self._retired:
                await asyncio.wait(self._retired)
            await wait_for_reaps()
        print_line("stopped")
        return 0

    def _on_stop(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            text = f"stopping · running tasks have {self._config.stop_timeout:g} s (again: cancel them now)"
            print_line(text if self._child is not None and self._child.alive else "stopping")
        elif self._child is not None:
            self._child.cancel_running()

    def _retire(self) -> None:
        """Let the process finish its tasks, without new ones, while the next process starts."""
        if self._child is not None and self._child.alive:
            task = asyncio.create_task(self._child.stop())
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)

    async def _run_child(self) -> None:
        """Start a process, and another one when it dies. If its code cannot be loaded, wait for the next save."""
        problem = ""
        while True:
            self._child = child = await self._start()
            if not await child.wait_ready(START_TIMEOUT):
                if self._page is not None:
                    self._page.answer_held()
                code = await child.wait_ended()
                message = child.error or f"it ended before it was ready, {describe_exit_code(code)}"
                if code != STORE:
                    print_error(f"{message}\nwaiting for the next save")
                    return
                if message != problem:  # no save mends the store
                    print_error(f"{message}\ntrying again until the store can be used")
                problem = message
                await asyncio.sleep(_STORE_PAUSE)
                continue
            print_line(f"worker ready · {child.banner} · reloads when you save")
            await self._show(child)
            code = await child.wait_ended()
            print_line(f"the worker died, {describe_exit_code(code)}; starting another")
            await asyncio.sleep(0.5)

    async def _start(self) -> WorkerProcess:
        """Start a process; one that is still being started when this is cancelled is stopped again."""
        starting = asyncio.ensure_future(WorkerProcess.start(self._config))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await (await starting).stop()
            raise

    async def _show(self, child: WorkerProcess) -> None:
        if self._page is None or child.stores is None:
            return
        try:
            await self._page.show(child.stores)
        except StoreError as error:
            print_line(f"page: {error}; it tries again when the worker starts again")


def python_files(folder: Path) -> dict[str, int]:
    """Return the Python files below a folder and their modification times; virtual environments are left out."""
    found: dict[str, int] = {}
    folders = [str(folder)]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:  # gone, or not readable
            continue
        if any(entry.name == "pyvenv.cfg" for entry in entries):
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.name in _SKIPPED:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.name.endswith(".py"):
                try:
                    found[entry.path] = entry.stat().st_mtime_ns
                except OSError:
                    continue
    return found


async def wait_for_change(folder: Path, files: dict[str, int]) -> dict[str, int]:
    """Wait until a file has changed, and then until no more do: editors and git write several."""
    now = files
    pause = _MIN_INTERVAL
    while True:
        await asyncio.sleep(pause)
        began = time.monotonic()
        before = now
        now = python_files(folder)
        pause = max(_MIN_INTERVAL, (time.monotonic() - began) / _MAX_SHARE)
        if now != files and now == before:
            return now
