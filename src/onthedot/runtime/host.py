"""Hosts of a worker: this event loop, a thread, another process, or the main thread until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from typing import Any, Literal

from onthedot.client.portal import LoopThread
from onthedot.engine.lifecycle import Lifecycle, Status
from onthedot.errors import SchedulerStateError
from onthedot.observability.logs import LogObserver
from onthedot.runtime.background_process import BackgroundProcess

Mode = Literal["loop", "thread", "main", "process"]
"""Where the worker runs: on the caller's event loop, a thread with its own, the main thread, or in another process."""


class WorkerHost:
    """Starts and stops the worker of a runtime, at most one at a time, with one `Lifecycle` for all hosts.

    start, stop_claiming, stop, cancel_running: what the runtime does with its worker
    stop_timeout: seconds that running tasks get at a stop; None: no limit
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[None]],
        stop_claiming: Callable[[], None],
        stop: Callable[[float | None], Awaitable[None]],
        cancel_running: Callable[[], None],
        logs: LogObserver,
        stop_timeout: float | None,
    ) -> None:
        self._start_worker = start
        self._stop_claiming = stop_claiming
        self._stop_worker = stop
        self._cancel_running = cancel_running
        self._logs = logs
        self._stop_timeout = stop_timeout
        self.start_lock: threading.Lock = threading.Lock()
        self._lifecycle: Lifecycle | None = None
        self._mode: Mode | None = None
        self._thread: LoopThread | None = None
        self._process: BackgroundProcess | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    @property
    def status(self) -> Status:
        if self._process is not None:
            return "running" if self._process.alive() else "stopped"
        if self._lifecycle is not None:
            return self._lifecycle.status
        return "stopped"

    def after_fork(self) -> None:
        """In the child, the worker of the parent does not run."""
        self.start_lock = threading.Lock()
        if self._process is not None:
            self._process.after_fork()
            self._process = None
        self._lifecycle = self._mode = self._thread = self.loop = None

    def on_failed(self, error: BaseException) -> None:
        if self._lifecycle is not None:
            self._lifecycle.on_failed(error)

    # -- on this loop

    async def start(self, mode: Mode = "loop") -> bool:
        with self.start_lock:
            loop = asyncio.get_running_loop()
            if self._process is not None and self.status != "stopped":
                raise SchedulerStateError("already running in another way (process): stop it first")
            if self.loop is not None and self.loop.is_closed():
                self._lifecycle = None  # the loop was closed before a stop: nothing runs any more
            if self._lifecycle is None or (self.status == "stopped" and self.loop is not loop):
                self._lifecycle = Lifecycle(
                    self._start_worker, self._stop_claiming, self._stop_worker, self._logs.scheduler
                )
            elif self.loop is not loop or (self.status != "stopped" and self._mode != mode):
                raise SchedulerStateError(f"already {self.status} in another way ({self._mode}): stop it first")
            lifecycle = self._lifecycle
            if not lifecycle.may_start():  # under the lock: two threads may start at once, each on its own loop
                return False
            self._mode = mode
            self.loop = loop
        return await lifecycle.start()

    async def stop(self, timeout: float | None = None) -> bool:
        """Stops the worker of this loop. timeout: seconds that running tasks get; None: `stop_timeout`."""
        if self._lifecycle is None:
            return False
        if self.loop is not asyncio.get_running_loop() and self.status != "stopped":
            raise SchedulerStateError("stop() on another event loop than the one it runs on")
        if timeout is None:
            timeout = self._stop_timeout
        return await self._lifecycle.stop(timeout)

    # -- on a thread

    def start_thread(self) -> bool:
        with self.start_lock:
            if not self._may_start("thread"):
                return False
            thread = LoopThread("onthedot-worker")
        try:
            thread.submit(self.start("thread")).result()
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        return True

    def stop_thread(self, timeout: float | None = None) -> bool:
        thread = self._thread
        self._thread = None
        if thread is None:
            return False
        stopping: Future[bool] = thread.submit(self.stop(timeout))
        try:
            return stopping.result()
        finally:
            thread.close()

    def _may_start(self, mode: Mode) -> bool:
        if self.status == "stopped":
            return True
        if self._mode != mode:
            raise SchedulerStateError(f"already {self.status} in another way ({self._mode}): stop it first")
        self._logs.scheduler.warning("start() has no effect: already %s", self.status)
        return False

    # -- in another process

    def start_process(self, launch: Callable[[], BackgroundProcess]) -> bool:
        with self.start_lock:
            if not self._may_start("process"):
                return False
            if self._process is not None:  # one that has ended by itself
                self._process.close()
            self._process = launch()
            self._mode = "process"
            return True

    def stop_process(self, timeout: float | None = None) -> bool:
        with self.start_lock:
            process = self._process
            self._process = None
        if process is None:
            return False
        process.stop(timeout)
        return True

    def ensure_known(self, name: str, module: str) -> None:
        """Makes a background process import the task's module. Raises DeclarationError if the task is unknown there."""
        if self._process is not None:
            self._process.ensure_known(name, module)

    # -- until a signal

    def run(self) -> None:
        """Runs tasks until Ctrl+C or SIGTERM, then stops in order. A second Ctrl+C cancels running tasks."""
        if asyncio._get_running_loop() is not None:
            raise SchedulerStateError(
                "this blocks, and an event loop is running here: write `async with app.running(): …` instead"
            )
        asyncio.run(self.run_until_signal("main"))

    async def run_until_signal(self, mode: Mode, duration: float | None = None) -> None:
        """Runs tasks on this loop until Ctrl+C or SIGTERM, or for `duration` seconds, then stops in order."""
        signalled = asyncio.Event()
        with _signals(signalled.set):
            if not await self.start(mode):
                return
            if duration is not None:
                asyncio.get_running_loop().call_later(duration, signalled.set)
            first = asyncio.ensure_future(signalled.wait())
            while self.status == "running" and not first.done():
                await asyncio.wait([first], timeout=1)  # the worker may also end by itself
            first.cancel()
            signalled.clear()
            stopping = asyncio.ensure_future(self.stop())
            again = asyncio.ensure_future(signalled.wait())
            await asyncio.wait([stopping, again], return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                self._cancel_running()
            await stopping
            again.cancel()


@contextlib.contextmanager
def _signals(callback: Callable[[], object]) -> Generator[None, None, None]:
    """SIGINT and SIGTERM call back instead of killing. Only the main thread can set handlers."""
    loop = asyncio.get_running_loop()
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for each in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):  # Windows: a KeyboardInterrupt is raised as usual
                handler = signal.getsignal(each)
                loop.add_signal_handler(each, callback)
                before[each] = handler
    try:
        yield
    finally:
        for each, handler in before.items():
            loop.remove_signal_handler(each)
            signal.signal(each, handler)
