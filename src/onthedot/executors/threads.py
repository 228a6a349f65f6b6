"""The executor of sync functions: a pool of threads with batched answers.

One ``call_soon_threadsafe`` per call costs 26 µs; collecting results and waking the loop once for all of them 0.7 µs.
The worker's slots bound the number of calls, so a thread is started whenever a call finds none idle.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from queue import SimpleQueue

from onthedot.executors.contract import Executor
from onthedot.model.context import current_run
from onthedot.model.failures import error_message, is_a

_Call = tuple[contextvars.Context, Callable[..., object], tuple[object, ...], "asyncio.Future[object]"]


class ThreadExecutor(Executor):
    """Runs functions in threads."""

    hard = False

    def __init__(self, name: str = "onthedot") -> None:
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._done: deque[tuple[asyncio.Future[object], object, BaseException | None]] = deque()
        self._lock = threading.Lock()
        self._idle = 0
        self._started = 0
        self._waking = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, call: Callable[..., object], *args: object) -> Awaitable[object]:
        loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            else:
                self._started += 1
                # A daemon, so that a call that never returns does not block the exit of the interpreter.
                threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()
        self._calls.put((contextvars.copy_context(), call, args, future))
        return future

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            context, call, args, future = item
            value: object = None
            error: BaseException | None = None
            try:
                context.run(_set_thread_name)
                value = context.run(call, *args)
            except BaseException as raised:  # noqa: BLE001 - SystemExit too: it fails this task, not the worker
                error = raised
            with self._lock:
                self._idle += 1
                self._done.append((future, value, error))
                must_wake = not self._waking
                self._waking = True
            del item, context, call, args, future, value, error
            if must_wake:
                self._wake_loop()

    def _wake_loop(self) -> None:
        try:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop was closed while the call went on: nothing waits for its result
            self._done.clear()

    def _deliver(self) -> None:
        with self._lock:
            self._waking = False
            done = list(self._done)
            self._done.clear()
        for future, value, error in done:
            if future.done():
                continue
            if error is None:
                future.set_result(value)
            elif is_a(error, StopIteration):  # a future refuses it
                future.set_exception(RuntimeError(f"task raised StopIteration: {error_message(error)}"))
            else:
                future.set_exception(error)

    def close(self) -> None:
        with self._lock:
            for _ in range(self._started):
                self._calls.put(None)
            self._started = self._idle = 0


def _set_thread_name() -> None:
    if (run := current_run()) is not None:
        run.thread = threading.current_thread().name
