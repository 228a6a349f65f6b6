"""A thread with a queue: calls come from any event loop, answers go back in one go a loop."""

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
from typing import Any, Generic, TypeVar

from onthedot.errors import StoreBusy, StoreUnavailable

A = TypeVar("A")
T = TypeVar("T")

_log = logging.getLogger("onthedot.store")
_MOST = 500  # calls that go together: others, and other processes, want their turn
PATIENCE = 4.0  # seconds a call waits for its turn; then it is withdrawn and will not happen


class Request(Generic[A]):
    """One call. Whoever takes it first decides: the thread that does it, or the loop that gives up."""

    __slots__ = ("_token", "answer", "at_commit", "error", "future", "loop", "work")

    def __init__(
        self, work: Callable[[A], Any], loop: asyncio.AbstractEventLoop | None = None, *, at_commit: bool = True
    ) -> None:
        self.work: Callable[[A], Any] = work
        self.at_commit: bool = at_commit  # answered when it is done, even if the disk does not have it yet
        self.loop: asyncio.AbstractEventLoop | None = loop  # None: the thread's own, nobody waits for it
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

    def expire(self, path: str) -> None:
        """On its loop."""
        if self.take() and self.future is not None and not self.future.done():
            words = f"{path}: others held the database for {PATIENCE:g} s; nothing was written, try again"
            self.future.set_exception(StoreBusy(words))

    def settle(self) -> None:
        """On its loop."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.answer)


class RequestThread(ABC, Generic[A]):
    """Subclasses say what `work` is done with the calls that have gathered."""

    def __init__(self, name: str, path: str) -> None:
        self.path = path
        self._calls: deque[Request[A]] = deque()
        self._rung = False
        self._stopping = False
        self._last: Request[A] | None = None
        self._forking = False
        self._at_rest, self._go_on = threading.Event(), threading.Event()
        self._ear, self._bell = os.pipe()
        os.set_blocking(self._ear, False)
        self._poll = select.poll()
        self._poll.register(self._ear, select.POLLIN)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def ask(self, work: Callable[[A], T], *, at_commit: bool = False) -> T:
        loop = asyncio.get_running_loop()
        call: Request[A] = Request(work, loop, at_commit=at_commit)
        if self._stopping:
            raise StoreUnavailable(f"{self.path} is closed")
        timer = loop.call_later(PATIENCE, call.expire, self.path)
        self._calls.append(call)
        if not self._rung:
            loop.call_soon(self.wake)  # not at once: what else this round of the loop asks goes with it
        assert call.future is not None
        try:
            answer: T = await call.future
            return answer
        finally:
            timer.cancel()
            call.take()  # who is cancelled does not want it any more

    def wake(self) -> None:
        if not self._rung and not self._stopping:
            self._rung = True
            os.write(self._bell, b"!")

    async def stop(self) -> None:
        """What was asked before is still done. A thread that hangs is left behind."""
        self._last = Request(lambda _: None, asyncio.get_running_loop())
        assert self._last.future is not None
        self._stopping = True
        os.write(self._bell, b"!")
        ended, _ = await asyncio.wait([self._last.future], timeout=PATIENCE)
        if ended:
            self._thread.join()  # it has said its last word
            self._hang_up()

    def _run(self) -> None:
        try:
            while self._calls or not self._stopping:
                try:
                    self._step()
                except Exception:  # noqa: BLE001 - a thread that ends would leave all who ask without an answer
                    _log.exception("%s: unforeseen; going on", self.path)
                    time.sleep(0.1)
        finally:
            self.close()
            answer([] if self._last is None else [self._last])

    # -- around a fork

    def pause(self) -> bool:
        """SQLite must not be open in a process that forks: the child would share locks that it does not know of.

        False: it did not come to rest in time.
        """
        self._at_rest.clear()
        self._go_on.clear()
        self._forking = True
        self.wake()
        return self._at_rest.wait(PATIENCE) or not self._thread.is_alive()

    def resume(self) -> None:
        self._forking = False
        self._go_on.set()

    @abstractmethod
    def disconnect(self) -> None:
        """Closes its connection, to open it again when it is needed."""

    def _step(self) -> None:
        if self._forking:
            self.disconnect()
            self._at_rest.set()
            self._go_on.wait()
            return
        if not self._calls:
            self._wait(self.patience())
            return
        calls = [self._calls.popleft() for _ in range(min(len(self._calls), _MOST))]
        self.work(calls)

    def _wait(self, ms: float | None) -> None:
        for fd, _ in self._poll.poll(ms):
            if fd == self._ear:
                os.read(self._ear, 64)
                self._rung = False
            else:
                self.on_readable(fd)

    def watch(self, fd: int) -> None:
        """From any thread: the thread hears it from its next look on."""
        self._poll.register(fd, select.POLLIN)
        self.wake()

    def unwatch(self, fd: int) -> None:
        with suppress(KeyError):
            self._poll.unregister(fd)

    def after_fork(self) -> None:
        """In the child: the thread is the parent's, and so is everything but these copies of its files."""
        self._hang_up()

    def _hang_up(self) -> None:
        os.close(self._ear)
        os.close(self._bell)

    @abstractmethod
    def work(self, calls: list[Request[A]]) -> None:
        """Does what has gathered and was not withdrawn, and answers it."""

    @abstractmethod
    def close(self) -> None:
        """Everything, for good."""

    def patience(self) -> float | None:
        """ms after which the thread wants to look up, even if nobody calls."""
        return None

    def on_readable(self, fd: int) -> None:
        """One of the other files that it listens to."""


def answer(calls: list[Request[A]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Request[A]]] = {}
    for call in calls:
        if call.loop is not None:
            by_loop.setdefault(call.loop, []).append(call)
    for loop, some in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, some)
        except RuntimeError:  # closed: nobody waits there any more
            continue


def _settle(calls: list[Request[Any]]) -> None:
    for call in calls:
        call.settle()
