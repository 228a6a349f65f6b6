"""A worker in this process: from its parts to its end, on one event loop, or on a thread of its own."""

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


class WorkerHost:
    """Start and stop for every door: ``running()`` (here), ``background()`` (a thread), ``run()`` (until a signal)."""

    def __init__(
        self,
        begin: Callable[[], Awaitable[None]],
        halt: Callable[[], None],
        finish: Callable[[float | None], Awaitable[None]],
        logs: LogObserver,
        stop_timeout: float | None,
        hurry: Callable[[], None],
    ) -> None:
        self._begin = begin
        self._halt = halt
        self._finish = finish
        self._logs = logs
        self._stop_timeout = stop_timeout
        self._hurry = hurry
        self._lock = threading.Lock()
        self._lifecycle: Lifecycle | None = None
        self._mode: Mode | None = None
        self._thread: LoopThread | None = None
        self._process: BackgroundProcess | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    @property
    def status(self) -> Status:
        if self._process is not None:
            return "running" if self._process.alive() else "stopped"
        return "stopped" if self._lifecycle is None else self._lifecycle.status

    def after_fork(self) -> None:
        """In the child nothing of the parent's is running."""
        self._lock = threading.Lock()
        if self._process is not None:
            self._process.after_fork()
            self._process = None
        self._lifecycle = self._mode = self._thread = self.loop = None

    def failed(self, error: BaseException) -> None:
        if self._lifecycle is not None:
            self._lifecycle.failed(error)

    # -- on this loop

    async def start(self, mode: Mode = "loop") -> bool:
        with self._lock:
            loop = asyncio.get_running_loop()
            if self._process is not None and self.status != "stopped":
                raise SchedulerStateError("already running in another way (process): stop it first")
            if self.loop is not None and self.loop.is_closed():
                self._lifecycle = None  # the loop was closed over it: nothing of it is alive
            if self._lifecycle is None or (self.status == "stopped" and self.loop is not loop):
                self._lifecycle = Lifecycle(self._begin, self._halt, self._finish, self._logs.scheduler)
            elif self.loop is not loop or (self.status != "stopped" and self._mode != mode):
                raise SchedulerStateError(f"already {self.status} in another way ({self._mode}): stop it first")
            lifecycle = self._lifecycle
            if not lifecycle.may_start():  # under the lock: two threads may ask at once, each on a loop of its own
                return False
            self._mode, self.loop = mode, loop
        return await lifecycle.start()

    async def stop(self, timeout: float | None = None) -> bool:
        """None: as long as was said at the start."""
        if self._lifecycle is None:
            return False
        if self.loop is not asyncio.get_running_loop() and self.status != "stopped":
            raise SchedulerStateError("stop() on another event loop than the one it runs on")
        return await self._lifecycle.stop(self._stop_timeout if timeout is None else timeout)

    # -- on a thread

    def start_thread(self) -> bool:
        with self._lock:
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

    def _may_start(self, mode: Mode) -> bool:
        if self.status == "stopped":
            return True
        if self._mode != mode:
            raise SchedulerStateError(f"already {self.status} in another way ({self._mode}): stop it first")
        self._logs.scheduler.warning("start() has no effect: already %s", self.status)
        return False

    # -- in a process of its own

    def start_process(self, begin: Callable[[], BackgroundProcess]) -> bool:
        with self._lock:
            if not self._may_start("process"):
                return False
            if self._process is not None:  # one that has ended by itself
                self._process.close()
            self._process = begin()
            self._mode = "process"
            return True

    def stop_process(self, timeout: float | None = None) -> bool:
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return False
        process.stop(timeout)
        return True

    def ensure_known(self, name: str, module: str) -> None:
        """Whoever runs tasks elsewhere must know this one too. Raises if it cannot."""
        if self._process is not None:
            self._process.ensure_known(name, module)

    # -- the end of a thread

    def stop_thread(self, timeout: float | None = None) -> bool:
        thread, self._thread = self._thread, None
        if thread is None:
            return False
        stopping: Future[bool] = thread.submit(self.stop(timeout))
        try:
            return stopping.result()
        finally:
            thread.close()

    # -- until a signal

    def run(self) -> None:
        """Blocks until Ctrl+C or SIGTERM, stops in order, and returns. A second Ctrl+C cancels what still runs."""
        if asyncio._get_running_loop() is not None:
            raise SchedulerStateError(
                "this blocks, and an event loop is running here: write `async with app.running(): …` instead"
            )
        asyncio.run(self.run_until_signal("main"))

    async def run_until_signal(self, mode: Mode, duration: float | None = None) -> None:
        """Works on this loop until Ctrl+C or SIGTERM, or for so many seconds, and stops in order."""
        asked = asyncio.Event()
        stopping: asyncio.Task[bool] | None = None
        with _signals(asked.set):
            if not await self.start(mode):
                return
            if duration is not None:
                asyncio.get_running_loop().call_later(duration, asked.set)
            ended = asyncio.ensure_future(asked.wait())
            while self.status == "running" and not ended.done():
                await asyncio.wait([ended], timeout=1)  # the engine may also end by itself
            ended.cancel()
            asked.clear()
            stopping = asyncio.ensure_future(self.stop())
            again = asyncio.ensure_future(asked.wait())
            await asyncio.wait([stopping, again], return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                self._hurry()
            await stopping
            again.cancel()


@contextlib.contextmanager
def _signals(callback: Callable[[], object]) -> Generator[None, None, None]:
    """SIGINT and SIGTERM call back instead of killing; only the main thread may say so."""
    loop = asyncio.get_running_loop()
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for each in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):  # Windows: KeyboardInterrupt comes as it always did
                handler = signal.getsignal(each)
                loop.add_signal_handler(each, callback)
                before[each] = handler
    try:
        yield
    finally:
        for each, handler in before.items():
            loop.remove_signal_handler(each)
            signal.signal(each, handler)
