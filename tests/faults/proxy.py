"""A TCP proxy between a client and its store that cuts, delays, swallows and holds back what passes.

All proxies of a process run on one event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, TypeVar

T = TypeVar("T")
Fault = Literal["cut", "swallow", "late", "delay"]
Direction = Literal["to the server", "to the client"]
_CHUNK = 65_536
_EXECUTION = 0.1  # seconds in which the server executes what it got before its connection is closed


@dataclass(frozen=True)
class FaultRates:
    """The probability of each fault per read. Requests can be swallowed or late, replies cannot."""

    cut: float = 0.004
    swallow: float = 0.008
    late: float = 0.002
    delay: float = 0.036
    late_seconds: tuple[float, float] = (4.5, 9.0)
    delay_seconds: tuple[float, float] = (0.0, 0.2)

    def draw(self, random: Random) -> Fault | None:
        chance = random.random()
        rates: dict[Fault, float] = {
            "cut": self.cut, "swallow": self.swallow, "late": self.late, "delay": self.delay,
        }  # fmt: skip
        for fault, rate in rates.items():
            if chance < rate:
                return fault
            chance -= rate
        return None


NO_FAULTS = FaultRates(0, 0, 0, 0)


class _Link:
    """One connection of a client, and that to the server."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.is_silent = False  # half-open: nothing is forwarded or closed
        self.drops_replies = False
        self.holds = 0  # requests that are delivered although the client has left

    def close(self) -> None:
        for end in (self.client, self.server):
            end.close()


class Proxy:
    """Forwards connections to a port of this machine. Its methods may be called from any thread."""

    def __init__(self, port: int, seed: int = 0) -> None:
        self._target = port
        self._random = Random(seed)
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._blocked: frozenset[Direction] = frozenset()
        self._is_cut_off = False
        self._unanswered = b""
        self._swallow_from: int | None = None  # the size of the next reply that is swallowed
        self._passes_before_swallow = 0
        self._last_reply = 0.0
        self._blocks_after_swallow = False
        self.rates: FaultRates = NO_FAULTS
        self.counts: Counter[str] = Counter()
        self._server = _call(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    # -- faults, from any thread

    @property
    def connections(self) -> int:
        return sum(not link.is_silent for link in self._links)

    def cut(self) -> int:
        """Closes all connections at both ends. New ones are accepted."""
        return _run(lambda: self._close(link for link in self._links if not link.is_silent))

    def go_silent(self) -> None:
        """Stops forwarding without closing, as if the other end had lost its power. New connections work."""

        def silence() -> None:
            for link in self._links:
                link.is_silent = True

        _run(silence)

    def cut_off(self) -> None:
        """Closes all connections and refuses new ones, until `restore`."""

        def cut() -> None:
            self._is_cut_off = True
            self._close(self._links)

        _run(cut)

    def block(self, direction: Direction) -> None:
        """Drops everything in one direction without closing, until `restore`."""
        self._blocked = frozenset({direction})

    def restore(self) -> None:
        """Ends `cut_off`, `block` and `drop_replies_to`. Connections that have lost bytes are cut."""

        def restore() -> None:
            self._is_cut_off = False
            if self._blocked or self._unanswered:
                self._blocked = frozenset()
                self._unanswered = b""
                self._close(self._links)

        _run(restore)

    def swallow_reply(self, least: int = 1, *, after: int = 0, then_block: bool = False) -> None:
        """Drops the next reply that has at least this many bytes in one read, and cuts its connection.

        after: so many such replies pass before. then_block: no other reply passes either, until `restore`, so that also
        repeats of the call get no answer.
        """
        self._blocks_after_swallow = then_block
        self._passes_before_swallow = after
        self._swallow_from = least

    def stop_swallowing(self) -> bool:
        """Whether the reply of the last `swallow_reply` has not come."""
        waiting = self._swallow_from is not None
        self._swallow_from = None
        return waiting

    def drop_replies_to(self, marker: bytes) -> None:
        """Cuts all connections. From now on one that sends these bytes gets no reply any more, until `restore`."""

        def drop() -> None:
            self._unanswered = marker
            self._close(self._links)

        _run(drop)

    def close(self) -> None:
        async def close() -> None:
            self._server.close()
            self._close(self._links)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        _call(close())

    def quiet_for(self) -> float:
        """Seconds since the last reply."""
        return time.monotonic() - self._last_reply

    # -- on the loop

    def _close(self, links: Any) -> int:
        closed = list(links)
        for link in closed:
            link.close()
            self._links.discard(link)
        return len(closed)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut_off:
            writer.close()
            return
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # the server is down
            writer.close()
            return
        link = _Link(writer, to_server)
        self._links.add(link)
        for forward in (self._forward_requests(reader, link), self._forward_replies(from_server, link)):
            task = asyncio.create_task(self._until_closed(forward, link))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _until_closed(self, forward: Coroutine[Any, Any, None], link: _Link) -> None:
        with contextlib.suppress(OSError):
            await forward
        if not link.is_silent and not link.holds:
            self._close([link])

    async def _forward_requests(self, reader: asyncio.StreamReader, link: _Link) -> None:
        while data := await reader.read(_CHUNK):
            if link.is_silent:
                return
            if "to the server" in self._blocked:
                self.counts["dropped"] += 1
                continue
            fault = self.rates.draw(self._random)
            if fault is not None:
                self.counts[fault] += 1
            if fault == "cut":
                return
            if fault == "late":
                link.holds += 1
                deliver = asyncio.create_task(self._deliver_late(data, link))
                self._tasks.add(deliver)
                deliver.add_done_callback(self._tasks.discard)
                return
            if fault == "delay":
                await asyncio.sleep(self._random.uniform(*self.rates.delay_seconds))
            if self._unanswered and self._unanswered in data:
                self.counts["unanswered"] += 1
                link.drops_replies = True
            link.drops_replies = link.drops_replies or fault == "swallow"
            link.server.write(data)
            await link.server.drain()
            if fault == "swallow":
                await asyncio.sleep(_EXECUTION)
                return

    async def _deliver_late(self, data: bytes, link: _Link) -> None:
        """The server gets the request although its sender has given up. The connection is closed after it."""
        await asyncio.sleep(self._random.uniform(*self.rates.late_seconds))
        with contextlib.suppress(OSError):
            link.server.write(data)
            await link.server.drain()
            await asyncio.sleep(_EXECUTION)
        link.holds -= 1
        self._close([link])

    async def _forward_replies(self, reader: asyncio.StreamReader, link: _Link) -> None:
        while data := await reader.read(_CHUNK):
            self._last_reply = time.monotonic()
            if link.is_silent:
                return
            if link.drops_replies or "to the client" in self._blocked:
                continue
            if self._swallows(data):
                return
            if self.rates is not NO_FAULTS:
                fault = self.rates.draw(self._random)
                if fault == "cut":
                    self.counts["cut"] += 1
                    return
                if fault == "delay":
                    self.counts["delay"] += 1
                    await asyncio.sleep(self._random.uniform(*self.rates.delay_seconds))
            link.client.write(data)
            await link.client.drain()

    def _swallows(self, reply: bytes) -> bool:
        if self._swallow_from is None or len(reply) < self._swallow_from:
            return False
        if self._passes_before_swallow:
            self._passes_before_swallow -= 1
            return False
        self._swallow_from = None
        if self._blocks_after_swallow:
            self._blocked = frozenset({"to the client"})
        self.counts["swallow"] += 1
        return True


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="proxy", daemon=True).start()
    return loop


def _call(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result(20)


def _run(work: Callable[[], T]) -> T:
    done: Future[T] = Future()
    _loop().call_soon_threadsafe(lambda: done.set_result(work()))
    return done.result(20)


@contextlib.contextmanager
def proxy(port: int, seed: int = 0) -> Iterator[Proxy]:
    link = Proxy(port, seed)
    try:
        yield link
    finally:
        link.close()
