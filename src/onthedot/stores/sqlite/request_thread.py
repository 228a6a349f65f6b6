"""A thread with a request queue: requests come from any event loop; answers return in one callback per loop."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, Generic, TypeVar

from onthedot.errors import StoreBusy, StoreUnavailable

A = TypeVar("A")
T = TypeVar("T")

_log = logging.getLogger("onthedot.store")
_MAX_REQUESTS = 500  # in one transaction: other processes want to write, too
PATIENCE = 4.0  # seconds that a request waits; then it expires without effect
_BLOCKED = 0.5  # seconds by which a timer is late if other code has blocked the loop
_SYNC_PATIENCE = 1.0  # seconds more for the disk; then it is unknown whether an add is stored


class Request(Generic[A]):
    """One call. It is taken once: by the thread that runs it, or by the loop when it expires."""

    __slots__ = ("_token", "answer", "at_commit", "caller", "error", "future", "is_add", "loop", "work")

    def __init__(
        self,
        work: Callable[[A], Any],
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        caller: str | None = None,
        at_commit: bool = True,
        is_add: bool = False,
    ) -> None:
        self.work: Callable[[A], Any] = work
        self.caller: str | None = caller  # the session that asks
        self.at_commit: bool = at_commit  # answered before the fsync
        self.is_add: bool = is_add  # its caller does not wait for a disk that hangs
        self.loop: asyncio.AbstractEventLoop | None = loop  # None: the thread's own request
        self.future: asyncio.Future[Any] | None = None if loop is None else loop.create_future()
        self.answer: Any = None
        self.error: BaseException | None = None
        self._token = [True]  # list.pop is atomic

    def take(self) -> bool:
        try:
            return self._token.pop()
        except IndexError:
            return False

    @property
    def waits(self) -> bool:
        return bool(self._token)

    def expire(self, path: str, due: float) -> None:
        """Called on its loop, at `due` or later."""
        if self.future is None or self.future.done():
            return
        loop = self.future.get_loop()
        if loop.time() > due + _BLOCKED:  # the loop was blocked, perhaps before the thread was woken
            loop.call_later(_BLOCKED, self.expire, path, inf)
        elif self.take():
            message = f"{path}: others held the database for {PATIENCE:g} s; nothing was written, try again"
            self.future.set_exception(StoreBusy(message))
        elif self.is_add:
            loop.call_later(_SYNC_PATIENCE, self.give_up, path)

    def give_up(self, path: str) -> None:
        """Called on its loop."""
        if self.future is not None and not self.future.done():
            message = f"{path}: the disk did not answer within {PATIENCE + _SYNC_PATIENCE:g} s"
            self.future.set_exception(StoreUnavailable(message))

    def settle(self) -> None:
        """Called on its loop."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.answer)


class RequestThread(ABC, Generic[A]):
    """A subclass defines `work`, which runs the requests that have gathered."""

    def __init__(self, name: str, path: str) -> None:
        self.path = path
        self._calls: deque[Request[A]] = deque()
        self._is_woken = False
        self._stopping = False
        self._last: Request[A] | None = None
        self._forking = False
        self._paused = threading.Event()
        self._resumed = threading.Event()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        self._poll = select.poll()
        self._poll.register(self._wake_reader, select.POLLIN)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def ask(
        self, work: Callable[[A], T], *, caller: str | None = None, at_commit: bool = False, is_add: bool = False
    ) -> T:
        loop = asyncio.get_running_loop()
        call: Request[A] = Request(work, loop, caller=caller, at_commit=at_commit, is_add=is_add)
        if self._stopping:
            raise StoreUnavailable(f"{self.path} is closed", stored=False)
        timer = loop.call_later(PATIENCE, call.expire, self.path, loop.time() + PATIENCE)
        self._calls.append(call)
        if not self._is_woken:
            loop.call_soon(self.wake)  # later in this iteration of the loop, together with its other requests
        assert call.future is not None
        try:
            answer: T = await call.future
            return answer
        finally:
            timer.cancel()
            call.take()  # the caller may be cancelled

    def wake(self) -> None:
        if not self._is_woken and not self._stopping:
            self._is_woken = True
            os.write(self._wake_writer, b"!")

    async def stop(self) -> None:
        """Earlier requests are still run. A thread that hangs is left behind."""
        self._last = Request(lambda _: None, asyncio.get_running_loop())
        assert self._last.future is not None
        self._stopping = True
        os.write(self._wake_writer, b"!")
        ended, _ = await asyncio.wait([self._last.future], timeout=PATIENCE)
        if ended:
            self._thread.join()
            self._close_pipe()

    def _run(self) -> None:
        try:
            while self._calls or not self._stopping:
                try:
                    self._step()
                except Exception:  # noqa: BLE001 - without this thread no request would be answered
                    _log.exception("%s: unexpected error; the thread continues", self.path)
                    time.sleep(0.1)
        finally:
            self.close()
            answer([] if self._last is None else [self._last])

    # -- around a fork

    def pause(self) -> bool:
        """Close the connection: the child of a fork would share SQLite's locks without knowing.

        False: it did not pause in time.
        """
        self._paused.clear()
        self._resumed.clear()
        self._forking = True
        self.wake()
        return self._paused.wait(PATIENCE) or not self._thread.is_alive()

    def resume(self) -> None:
        self._forking = False
        self._resumed.set()

    @abstractmethod
    def disconnect(self) -> None:
        """Close the connection; it is opened again when it is needed."""

    def _step(self) -> None:
        if self._forking:
            self.disconnect()
            self._paused.set()
            self._resumed.wait()
            return
        if not self._calls:
            self._wait(self.patience())
            return
        calls: list[Request[A]] = []
        while self._calls and len(calls) < _MAX_REQUESTS:
            calls.append(self._calls.popleft())
        self.work(calls)

    def _wait(self, ms: float | None) -> None:
        for fd, _ in self._poll.poll(ms):
            if fd == self._wake_reader:
                os.read(self._wake_reader, 64)
                self._is_woken = False
            else:
                self.on_readable(fd)

    def watch(self, fd: int) -> None:
        """From any thread: poll this descriptor, too."""
        self._poll.register(fd, select.POLLIN)
        self.wake()

    def unwatch(self, fd: int) -> None:
        with suppress(KeyError):
            self._poll.unregister(fd)

    def after_fork(self) -> None:
        """In the child: only the copies of the pipe's descriptors are its own."""
        self._close_pipe()

    def _close_pipe(self) -> None:
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    @abstractmethod
    def work(self, calls: list[Request[A]]) -> None:
        """Run the requests that have not expired, and answer them."""

    @abstractmethod
    def close(self) -> None:
        """Close everything."""

    def patience(self) -> float | None:
        """ms after which the thread wakes up without a request."""
        return None

    def on_readable(self, fd: int) -> None:
        """A watched descriptor is readable."""


def inode(path: str) -> int:
    """Checked in every transaction: tasks that are added to a deleted file would be lost."""
    try:
        return os.stat(path).st_ino  # noqa: PTH116 - a third of the time that Path takes
    except FileNotFoundError:
        return 0


def answer(calls: list[Request[A]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Request[A]]] = {}
    for call in calls:
        if call.loop is not None:
            by_loop.setdefault(call.loop, []).append(call)
    for loop, requests in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, requests)
        except RuntimeError:  # the loop is closed: no caller is left
            continue


def _settle(calls: list[Request[Any]]) -> None:
    for call in calls:
        call.settle()
