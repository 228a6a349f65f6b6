"""Keeps worker processes going. It imports no user code, so nothing that tasks do can stop it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time

from onthedot.observability.log_format import say
from onthedot.supervisor.health_port import HealthPort
from onthedot.supervisor.heartbeats import wait_for_reaps
from onthedot.supervisor.messages import LaunchOptions
from onthedot.supervisor.worker_process import STARTING, WorkerProcess, how, signals

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0  # seconds before one that died young is started again
_YOUNG = 10.0
_TRIES = 3  # times that the first of a slot may end without a word before it was ready


class Supervisor:
    def __init__(self, config: LaunchOptions, processes: int, health: tuple[str, int] | None) -> None:
        self._config = config
        self._slots: list[WorkerProcess | None] = [None] * processes
        self._next: dict[int, WorkerProcess] = {}  # by slot: the successor of a rolling restart
        self._health = health
        self._stop = asyncio.Event()
        self._done: set[int] = set()  # slots that shall stay empty: drained, or --burst
        self._ready: set[int] = set()  # slots that have been
        self._all_ready = False
        self._killed = False
        self._failed: int | None = None  # what the first children ended with, if they could not start
        self._rolling: asyncio.Task[None] | None = None
        self._had_terminal = sys.stdin is not None and sys.stdin.isatty()

    async def run(self) -> int:
        """Until all have ended, by a signal or by themselves. Answers with the exit code."""
        async with contextlib.AsyncExitStack() as stack:
            asked = {signal.SIGTERM: self._asked, signal.SIGINT: self._asked}
            stack.enter_context(signals({**asked, signal.SIGHUP: self._hung_up}))
            if self._health is not None:
                await stack.enter_async_context(HealthPort(*self._health, self.trouble))
            keepers = [asyncio.create_task(self._keep(slot)) for slot in range(len(self._slots))]
            stopping = asyncio.create_task(self._stop_all())
            await asyncio.gather(*keepers)
            if self._stop.is_set():
                await stopping  # the successors of a rolling restart, too
            stopping.cancel()
            await wait_for_reaps()
            if self._failed is None and not self._config.burst:
                self._say("worker stopped" + (" · killed what did not stop in time" if self._killed else ""))
        return self._failed or int(self._killed)

    def trouble(self) -> dict[str, str]:
        """By process: why it should get no traffic."""
        kept = [(slot, child) for slot, child in enumerate(self._slots) if slot not in self._done]
        shown = {f"worker {slot + 1}": child.trouble() if child else "is starting" for slot, child in kept}
        return {name: trouble for name, trouble in shown.items() if trouble}

    def _say(self, text: str) -> None:
        say(text, self._config.log_format)

    # -- one slot

    async def _keep(self, slot: int) -> None:
        """One process after the other, until it is enough."""
        pause, tries = _FIRST_PAUSE, 0
        while not self._stop.is_set():
            child = self._slots[slot] = self._next.pop(slot, None) or await WorkerProcess.start(self._config)
            if self._stop.is_set():  # since the start was begun
                await child.stop()
            elif await child.started():
                self._one_ready(slot, child)
            code = await child.ended()
            if slot in self._next:  # its successor is at work
                continue
            if child.over or self._stop.is_set():  # --burst, drained, or told by us
                self._done.add(slot)
                return
            if slot not in self._ready:
                tries += code >= 0  # one that was killed says nothing about its code
                if child.error or tries == _TRIES:
                    self._give_up(child, code)
                    return
            pause = _FIRST_PAUSE if time.monotonic() - child.began > _YOUNG else min(pause * 2, _LONGEST_PAUSE)
            self._say(
                f"worker {slot + 1} (pid {child.pid}) {'stalled' if child.stalled else 'died'}, {how(code)}; "
                f"starting another in {pause:.1f} s" + (f": {child.error}" if child.error else "")
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)

    def _give_up(self, child: WorkerProcess, code: int) -> None:
        """It could not start, and said why, or often enough: starting it again would change nothing."""
        self._failed = code if code > 0 else 1
        message = child.error or f"the worker ended before it was ready, {how(code)}"
        print(f"onthedot: {message}", file=sys.stderr, flush=True)
        self._stop.set()

    def _one_ready(self, slot: int, child: WorkerProcess) -> None:
        self._ready.add(slot)
        if len(self._ready) == len(self._slots) and not self._all_ready:
            self._all_ready = True
            many = f" · {len(self._slots)} processes" if len(self._slots) > 1 else ""
            self._say(f"worker ready{many} · {child.told.ready}")

    # -- signals

    def _asked(self) -> None:
        """Once: running tasks finish. Again: they are cancelled and go back."""
        if self._stop.is_set():
            for child in self._living():
                child.hurry()
        else:
            self._stop.set()
            self._say(f"stopping · running tasks have {self._config.stop_timeout:g} s (again: cancel them now)")

    def _living(self) -> list[WorkerProcess]:
        known = [*self._slots, *self._next.values()]
        return [child for child in known if child is not None and child.alive]

    async def _stop_all(self) -> None:
        await self._stop.wait()
        if self._rolling is not None:
            self._rolling.cancel()
        ended = await asyncio.gather(*(child.stop() for child in self._living()))
        self._killed = not all(ended)

    def _hung_up(self) -> None:
        """SIGHUP: a rolling restart; but if our terminal was closed, an end."""
        if self._had_terminal:
            try:
                os.tcgetpgrp(0)
            except OSError:
                self._asked()
                return
        if not self._stop.is_set() and (self._rolling is None or self._rolling.done()):
            self._rolling = asyncio.create_task(self._roll())

    async def _roll(self) -> None:
        """One after the other: the new one is ready before the old one stops."""
        for slot, old in enumerate(self._slots):
            if old is None or not old.alive:
                continue
            new = await WorkerProcess.start(self._config)
            self._next[slot] = new
            if not (await new.started(STARTING) and new.alive):
                self._next.pop(slot, None)
                self._say(f"the new worker {slot + 1} cannot start, so the old ones stay: {new.error or 'it ended'}")
                await new.stop()
                return
            await old.stop()
        self._say("all workers have been replaced")
