"""The page of ``onthedot worker --web``: a child of the supervisor, started again when it dies.

It is not part of the supervisor, whose heartbeats nothing may delay, and it is started as a command, without user code.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable

from onthedot.supervisor.exit_codes import ADDRESS, USAGE
from onthedot.supervisor.fleet_page import StoreSpec
from onthedot.supervisor.restart_pause import RestartPause
from onthedot.supervisor.worker_process import describe_exit_code

_STOP_TIMEOUT = 5.0  # seconds; it answers requests for up to three


class WebProcess:
    """address: as in ``[HOST]:PORT``; print_line: prints a line of the supervisor."""

    def __init__(self, address: str, print_line: Callable[[str], None]) -> None:
        self._address = address
        self._print_line = print_line
        self._process: Process | None = None
        self._running: asyncio.Task[None] | None = None

    def start(self, stores: StoreSpec) -> None:
        """Serve the page of this store from now on; does nothing if that has begun."""
        if self._running is not None:
            return
        if stores.url.startswith("memory:"):
            self._print_line("no page: memory:// lives inside one process; `onthedot dev` shows it")
            return
        self._running = asyncio.create_task(self._run(stores))

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_TIMEOUT)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _run(self, stores: StoreSpec) -> None:
        restarts = RestartPause()
        while True:
            began = time.monotonic()
            starting = asyncio.ensure_future(self._start(stores))
            try:
                process = await asyncio.shield(starting)
            except asyncio.CancelledError:
                await starting
                raise
            code = await process.wait()
            if code == USAGE:
                self._print_line("no page: its settings are refused")
                return
            pause = restarts.next(time.monotonic() - began, was_killed=code < 0)
            problem = f"page (pid {process.pid}) died, {describe_exit_code(code)}; starting another"
            if code == ADDRESS:
                problem = f"no page: {self._address} is not free; trying again"
            self._print_line(f"{problem} in {pause:.1f} s")
            await asyncio.sleep(pause)

    async def _start(self, stores: StoreSpec) -> Process:
        """Nothing secret among the arguments, which the list of processes shows."""
        environment = {**os.environ, "ONTHEDOT_STORE": stores.url, "ONTHEDOT_APP_NAME": stores.app}
        environment.pop("ONTHEDOT_APP", None)
        if stores.outbox:
            environment["ONTHEDOT_WEB_OUTBOX"] = stores.outbox
        command = (sys.executable, "-m", "onthedot", "web", "--listen", self._address, "--until-eof")
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, env=environment, process_group=0)
        self._process = process
        return process
