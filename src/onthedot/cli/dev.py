"""``onthedot dev``: one worker process, replaced when a file changes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import click

from onthedot.cli.options import GlobalOptions, shared
from onthedot.cli.worker import app_given, needs_unix
from onthedot.observability.log_format import say
from onthedot.supervisor.app_loader import where
from onthedot.supervisor.heartbeats import wait_for_reaps
from onthedot.supervisor.messages import LaunchOptions
from onthedot.supervisor.worker_process import STARTING, WorkerProcess, how, signals

_LEAST = 0.2  # seconds between two looks
_SHARE = 0.02  # of a core, at most, for looking
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


@click.command()
@click.argument("app", required=False)
@shared("app", "store")
@click.option("--stop-timeout", type=click.FloatRange(0), default=5.0, show_default=True,
              help="Seconds that running tasks get when you save or stop; then they go back.")  # fmt: skip
@click.pass_obj
def dev(said: GlobalOptions, app: str | None, stop_timeout: float) -> None:
    """Run the tasks of APP (app.py or module:app) and reload when you save."""
    needs_unix("dev")
    config = LaunchOptions(app_given(said, app), said.store, stop_timeout=stop_timeout, foreground=True)
    folder, _ = where(config.app.partition(":")[0])
    sys.exit(asyncio.run(_Dev(config, folder).run()))


class _Dev:
    def __init__(self, config: LaunchOptions, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._stop = asyncio.Event()
        self._child: WorkerProcess | None = None
        self._old: set[asyncio.Task[bool]] = set()

    async def run(self) -> int:
        seen = files_below(self._folder)
        with signals(dict.fromkeys((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), self._asked)):
            stop = asyncio.create_task(self._stop.wait())
            while not stop.done():
                starting = asyncio.create_task(self._start())
                changed = asyncio.create_task(changes(self._folder, seen))
                await asyncio.wait([stop, changed], return_when=asyncio.FIRST_COMPLETED)
                if not stop.done():
                    before, seen = seen, changed.result()
                    name = next(name for name in {**seen, **before} if seen.get(name) != before.get(name))
                    say(f"{Path(name).relative_to(self._folder)} changed · reloading")
                for task in (changed, starting):
                    task.cancel()
                await asyncio.wait([changed, starting])
                self._retire()
            if self._old:
                await asyncio.wait(self._old)
            await wait_for_reaps()
        say("stopped")
        return 0

    def _asked(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            patience = f"running tasks have {self._config.stop_timeout:g} s (again: cancel them now)"
            say(f"stopping · {patience}" if self._child is not None and self._child.alive else "stopping")
        elif self._child is not None:
            self._child.hurry()

    def _retire(self) -> None:
        """It claims nothing more, and finishes what it runs while the next one starts."""
        if self._child is not None and self._child.alive:
            task = asyncio.create_task(self._child.stop())
            self._old.add(task)
            task.add_done_callback(self._old.discard)

    async def _start(self) -> None:
        """Until it runs; what dies by itself is started again, what cannot start waits for the next save."""
        while True:
            self._child = child = await asyncio.shield(asyncio.ensure_future(WorkerProcess.start(self._config)))
            if not await child.started(STARTING):
                message = child.error or f"it ended before it was ready, {how(await child.ended())}"
                print(f"onthedot: {message}\nwaiting for the next save", file=sys.stderr, flush=True)
                return
            say(f"worker ready · {child.told.ready} · reloads when you save")
            code = await child.ended()
            say(f"the worker died, {how(code)}; starting another")
            await asyncio.sleep(0.5)


def files_below(folder: Path) -> dict[str, int]:
    """Python files and when they were written; not those of environments."""
    found: dict[str, int] = {}
    folders = [str(folder)]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:  # gone, or not for us
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


async def changes(folder: Path, seen: dict[str, int]) -> dict[str, int]:
    """Waits until a file has changed, and then until no more do: editors and git write many."""
    now, pause = seen, _LEAST
    while True:
        await asyncio.sleep(pause)
        began = time.monotonic()
        before, now = now, files_below(folder)
        pause = max(_LEAST, (time.monotonic() - began) / _SHARE)
        if now != seen and now == before:
            return now
