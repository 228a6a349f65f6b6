"""The supervisor keeps worker processes running. It imports no user code, so tasks cannot stop it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time

import msgspec

from onthedot.observability.log_format import print_error, print_line
from onthedot.supervisor.fleet_page import FleetPage
from onthedot.supervisor.health_port import HealthPort
from onthedot.supervisor.heartbeats import wait_for_reaps
from onthedot.supervisor.messages import LaunchOptions
from onthedot.supervisor.restart_pause import RestartPause
from onthedot.supervisor.service_manager import ServiceManager
from onthedot.supervisor.web_process import WebProcess
from onthedot.supervisor.worker_metrics import WorkerMetrics
from onthedot.supervisor.worker_process import START_TIMEOUT, WorkerProcess, describe_exit_code, signal_handlers

_MAX_FAILED_STARTS = 3  # of a slot that has never been ready, without an error message


class Supervisor:
    """A slot is the place of one process and of its successors.

    health: the address of the health port
    manager: is notified when all processes are ready, and when the supervisor stops
    web: the address of the page
    """

    def __init__(
        self,
        config: LaunchOptions,
        processes: int,
        health: tuple[str, int] | None,
        manager: ServiceManager,
        web: str | None = None,
    ) -> None:
        self._config = config
        self._slots: list[WorkerProcess | None] = [None] * processes
        self._successors: dict[int, WorkerProcess] = {}  # by slot, during a rolling restart
        self._health = health
        self._web = None if web is None else WebProcess(web, self._print_line)
        self._manager = manager
        self._metrics = WorkerMetrics()
        self._stop = asyncio.Event()
        self._done: set[int] = set()  # slots that stay empty: drained, or --burst
        self._ready: set[int] = set()  # slots that have been ready
        self._all_ready = False
        self._killed = False
        self._failed: int | None = None  # the exit code of the first processes, if they could not start
        self._rolling: asyncio.Task[None] | None = None
        self._had_terminal = sys.stdin is not None and sys.stdin.isatty()

    async def run(self) -> int:
        """Run until all processes have ended, by a signal or by themselves. Return the exit code."""
        async with contextlib.AsyncExitStack() as stack:
            stops = {signal.SIGTERM: self._on_stop, signal.SIGINT: self._on_stop}
            stack.enter_context(signal_handlers({**stops, signal.SIGHUP: self._on_hangup}))
            await stack.enter_async_context(self._manager.watchdog())
            if self._health is not None:
                fleet = FleetPage(self._config.metrics_sources)
                stack.push_async_callback(fleet.close)
                port = HealthPort(*self._health, self.problems, self._metrics.text, lambda: self._fleet_text(fleet))
                await stack.enter_async_context(port)
            slots = [asyncio.create_task(self._run_slot(slot)) for slot in range(len(self._slots))]
            if self._web is not None:
                stack.push_async_callback(self._web.stop)
            stopping = asyncio.create_task(self._stop_all())
            await asyncio.gather(*slots)
            if self._stop.is_set():
                await stopping  # includes the successors of a rolling restart
            stopping.cancel()
            await wait_for_reaps()
            if self._failed is None and not self._config.burst:
                self._print_line(
                    "worker stopped · killed what did not stop in time" if self._killed else "worker stopped"
                )
        return self._failed or int(self._killed)

    def problems(self) -> dict[str, str]:
        """By process: why it should get no traffic."""
        kept = [(slot, child) for slot, child in enumerate(self._slots) if slot not in self._done]
        problems = {f"worker {slot + 1}": child.problem() if child else "is starting" for slot, child in kept}
        return {name: problem for name, problem in problems.items() if problem}

    async def _fleet_text(self, fleet: FleetPage) -> str | None:
        """None: no process is ready yet, or the store is inside of a process."""
        stores = next((child.stores for child in self._living() if child.stores is not None), None)
        if stores is None or stores.url.startswith("memory:"):
            return None
        return await fleet.text(stores)

    def _print_line(self, text: str) -> None:
        print_line(text, self._config.log_format)

    # -- one slot

    async def _run_slot(self, slot: int) -> None:
        """Run one process after the other, until none is wanted."""
        restarts = RestartPause()
        failed_starts = 0
        while not self._stop.is_set():
            child = self._successors.pop(slot, None) or await self._start(slot)
            self._slots[slot] = child
            if self._stop.is_set():  # since the start began
                await child.stop()
            elif await child.wait_ready():
                self._on_ready(slot, child)
            code = await child.wait_ended()
            self._metrics.remove(child)
            if slot in self._successors:
                continue
            if child.finished or self._stop.is_set():  # --burst, drained, or stopped by us
                self._done.add(slot)
                return
            if slot not in self._ready:
                failed_starts += code >= 0  # a killed process says nothing about its code
                if child.error or failed_starts == _MAX_FAILED_STARTS:
                    self._give_up(child, code)
                    return
            was_killed = code < 0 and slot in self._ready
            pause = restarts.next(time.monotonic() - child.started_at, was_killed=was_killed)
            how = "stalled" if child.stalled else "died"
            text = f"worker {slot + 1} (pid {child.pid}) {how}, {describe_exit_code(code)}"
            text += f"; starting another in {pause:.1f} s"
            if child.error:
                text += f": {child.error}"
            self._print_line(text)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)

    async def _start(self, slot: int) -> WorkerProcess:
        """The first slot has the components, and so have its successors: if it dies, the next one takes over."""
        child = await WorkerProcess.start(msgspec.structs.replace(self._config, components=slot == 0))
        self._metrics.add(child)
        return child

    def _give_up(self, child: WorkerProcess, code: int) -> None:
        """It could not start, and reported why or tried often enough: another start would change nothing."""
        self._failed = max(code, 1)
        message = child.error or f"the worker ended before it was ready, {describe_exit_code(code)}"
        print_error(message)
        self._stop.set()

    def _on_ready(self, slot: int, child: WorkerProcess) -> None:
        self._ready.add(slot)
        if self._web is not None and child.stores is not None:
            self._web.start(child.stores)
        if len(self._ready) == len(self._slots) and not self._all_ready:
            self._all_ready = True
            parts = ["worker ready", child.banner]
            if len(self._slots) > 1:
                parts.insert(1, f"{len(self._slots)} processes")
            self._print_line(" · ".join(parts))
            self._manager.send("READY=1", f"STATUS={' · '.join(parts)}")

    # -- signals

    def _on_stop(self) -> None:
        """The first signal lets running tasks finish, the second cancels and requeues them."""
        if self._stop.is_set():
            for child in self._living():
                child.cancel_running()
        else:
            self._stop.set()
            self._manager.send("STOPPING=1")
            self._print_line(f"stopping · running tasks have {self._config.stop_timeout:g} s (again: cancel them now)")

    def _living(self) -> list[WorkerProcess]:
        known = [*self._slots, *self._successors.values()]
        return [child for child in known if child is not None and child.alive]

    async def _stop_all(self) -> None:
        await self._stop.wait()
        if self._rolling is not None:
            self._rolling.cancel()
        ended = await asyncio.gather(*(child.stop() for child in self._living()))
        self._killed = not all(ended)

    def _on_hangup(self) -> None:
        """SIGHUP starts a rolling restart; if our terminal was closed, it stops the worker."""
        if self._had_terminal:
            try:
                os.tcgetpgrp(0)
            except OSError:
                self._on_stop()
                return
        if not self._stop.is_set() and (self._rolling is None or self._rolling.done()):
            self._rolling = asyncio.create_task(self._roll())

    async def _roll(self) -> None:
        """Replace one process after the other: the new one is ready before the old one stops."""
        for slot, old in enumerate(self._slots):
            if old is None or not old.alive:
                continue
            new = await self._start(slot)
            self._successors[slot] = new
            if not (await new.wait_ready(START_TIMEOUT + self._config.wait_for_store) and new.alive):
                self._successors.pop(slot, None)
                self._print_line(
                    f"the new worker {slot + 1} cannot start, so the old ones stay: {new.error or 'it ended'}"
                )
                await new.stop()
                self._metrics.remove(new)
                return
            await old.stop()
        self._print_line("all workers have been replaced")
