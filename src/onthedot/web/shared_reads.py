"""Reads for several callers: one at a time, used again for a while, and not kept longer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from onthedot.web.errors import ApiError

T = TypeVar("T")
_MAX_SHARED = 500  # reads whose answers are kept
_MAX_REST = 60.0  # seconds
MAX_WAIT = 5.0  # seconds until a long read begins
_MAX_WAITING = 3  # long reads


class _SharedRead:
    """A read that goes on, or its answer."""

    def __init__(self, task: asyncio.Future[Any], began: float) -> None:
        self.task = task
        self._began = began
        self._took = 0.0
        self._expiry: asyncio.TimerHandle | None = None

    def note_end(self, now: float) -> None:
        self._took = now - self._began

    def left(self, now: float, age: float, rest: float) -> float:
        """The seconds for which its answer can still be used."""
        return self._began + max(age, min(_MAX_REST, rest * self._took)) - now

    def is_usable(self, now: float, age: float, rest: float) -> bool:
        return not self.task.done() or self.left(now, age, rest) > 0

    def expire_in(self, seconds: float, drop: Callable[[], None]) -> None:
        self._expiry = self.task.get_loop().call_later(seconds, drop)

    def close(self) -> None:
        """Its answer is not kept in memory until it would have expired."""
        if self._expiry is not None:
            self._expiry.cancel()


class SharedReads:
    """Reads whose answer serves every caller of the next moments: 50 viewers cost one read."""

    def __init__(self) -> None:
        self._reads: dict[str, _SharedRead] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._reads)

    async def get(self, name: str, age: float, read: Callable[[], Awaitable[T]], *, rest: float = 0) -> T:
        """age: seconds for which an answer is used again; rest: at least so many times as long as the read took."""
        loop = asyncio.get_running_loop()
        found = self._reads.get(name)
        if found is None or found.task.get_loop() is not loop or not found.is_usable(loop.time(), age, rest):
            self._drop(name, found)
            found = self._begin(name, age, asyncio.ensure_future(read()), rest)
        return await asyncio.shield(found.task)

    def _begin(self, name: str, age: float, task: asyncio.Future[T], rest: float) -> _SharedRead:
        found = _SharedRead(task, task.get_loop().time())

        def end(done: asyncio.Future[T]) -> None:
            now = done.get_loop().time()
            found.note_end(now)
            left = found.left(now, age, rest)
            if done.cancelled() or done.exception() is not None or left <= 0:  # each caller raises it
                self._drop(name, found)
            elif self._reads.get(name) is found:
                found.expire_in(left, lambda: self._drop(name, found))

        task.add_done_callback(end)
        self._reads[name] = found
        if len(self._reads) > _MAX_SHARED:  # names can have texts of callers in them
            self.forget(next(iter(self._reads)))
        return found

    def _drop(self, name: str, found: _SharedRead | None) -> None:
        if found is not None and self._reads.get(name) is found:
            del self._reads[name]
            found.close()

    def forget(self, *names: str) -> None:
        """The next caller reads again: this process has changed something."""
        for name in names or list(self._reads):
            self._drop(name, self._reads.get(name))


class LongReads:
    """Reads of which one goes on at a time. After each there is a rest: so many times as long as it took."""

    def __init__(self, title: str, rest: float) -> None:
        self._title = title
        self._rest = rest
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = 0
        self._free_at = 0.0

    async def run(self, read: Callable[[], Awaitable[T]], *, rested: bool = True) -> T:
        """ApiError: it could not begin within a few seconds. rested: after the rest of the one before."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._lock = asyncio.Lock()
            self._loop = loop
            self._waiting = 0
        if self._waiting >= _MAX_WAITING:
            raise self._refusal(MAX_WAIT)
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        try:
            wait = self._free_at - loop.time() if rested else 0.0
            if wait > MAX_WAIT:
                raise self._refusal(wait)
            await asyncio.sleep(max(0.0, wait))
            return await self._timed(read)
        finally:
            self._lock.release()

    def end_rest(self) -> None:
        """The next one can begin at once: this process has changed something."""
        self._free_at = 0.0

    async def _timed(self, read: Callable[[], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await read()
        finally:
            self._free_at = loop.time() + min(_MAX_REST, self._rest * (loop.time() - began))

    def _refusal(self, wait: float) -> ApiError:
        return ApiError("too_many", f"all {self._title} were read a moment ago; try again", retry_after=wait)
