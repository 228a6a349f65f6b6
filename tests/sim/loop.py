"""An event loop with virtual time. The seed decides in which order the nodes take their steps."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from random import Random
from struct import pack
from typing import Any
from zlib import crc32

NODE: ContextVar[str] = ContextVar("node", default="world")
"""The node whose code runs. Tasks and callbacks inherit it from the code that creates them."""

_MAX_STEPS_AT_ONCE = 50_000  # without time going on: a loop of the engine that never waits


class SimHandle:
    """A callback that is due. It is its own timer."""

    def __init__(self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context) -> None:
        self._when = when
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self.node: str = context.get(NODE, "world")

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def run(self) -> None:
        if self.callback is not None:
            self.context.run(self.callback, *self.args)


class SimLoop(asyncio.AbstractEventLoop):
    """One queue per node, since asyncio promises order within a process. It has no selector: sockets and threads raise.

    on_step: called after every step
    on_error: called with what asyncio reports as unhandled
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._now = 1000.0
        self._queues: dict[str, deque[SimHandle]] = {}
        self._timers: list[tuple[float, int, SimHandle]] = []
        self._order = 0
        self._stopped: set[str] = set()  # killed or paused
        self._killed: set[str] = set()
        self._paused_at: dict[str, float] = {}
        self._retained: list[object] = []  # what killed nodes held: collecting it would run their `finally` clauses
        self._steps_at_once = 0
        self.pauses: defaultdict[str, float] = defaultdict(float)  # seconds that each node was paused
        self.digest: int = 0  # of node and time of every step
        self.steps: int = 0
        self.on_step: Callable[[], object] | None = None
        self.on_error: Callable[[dict[str, Any]], object] | None = None

    # -- for the scenario

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Runs until `main` returns, and raises what it raises."""
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(main)
            while not task.done():
                self._step()
            task.result()
        finally:
            asyncio._set_running_loop(None)

    def spawn(self, node: str, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs a coroutine as code of a node."""
        context = copy_context()
        context.run(NODE.set, node)
        task: asyncio.Task[Any] = context.run(self.create_task, coroutine)
        self._retained.append(task)  # a task that nothing else refers to would be collected
        return task

    def call_as(self, node: str, delay: float, callback: Callable[[], object]) -> None:
        """Calls back later, as code of a node."""
        context = copy_context()
        context.run(NODE.set, node)
        self.call_later(delay, callback, context=context)

    def kill(self, node: str) -> None:
        """The node takes no further step, and no `finally` clause of it runs."""
        self._stopped.add(node)
        self._killed.add(node)
        self._retained.append(self._queues.pop(node, None))

    def pause(self, node: str) -> None:
        self._stopped.add(node)
        self._paused_at.setdefault(node, self._now)

    def resume(self, node: str) -> None:
        if node in self._paused_at:
            self.pauses[node] += self._now - self._paused_at.pop(node)
        if node not in self._killed:
            self._stopped.discard(node)

    def is_live(self, node: str) -> bool:
        """Neither killed nor paused."""
        return node not in self._stopped

    # -- steps

    def _step(self) -> None:
        ready = [node for node, queue in self._queues.items() if queue and node not in self._stopped]
        if not ready:
            self._advance()
            return
        node = ready[0] if len(ready) == 1 else ready[int(self._random.random() * len(ready))]
        handle = self._queues[node].popleft()
        if handle.callback is None:
            return
        self.steps += 1
        self._steps_at_once += 1
        if self._steps_at_once > _MAX_STEPS_AT_ONCE:
            raise RuntimeError(f"{_MAX_STEPS_AT_ONCE} steps without time going on: {handle.callback!r} of {node}")
        self.digest = crc32(node.encode() + pack("d", self._now), self.digest)
        handle.run()
        if self.on_step is not None:
            self.on_step()

    def _advance(self) -> None:
        """Nothing is ready: time jumps to the next timer."""
        while self._timers and self._timers[0][2].callback is None:
            heappop(self._timers)
        if not self._timers:
            raise RuntimeError("nothing is ready and no timer is set: the scenario waits for ever")
        self._now = max(self._now, self._timers[0][0])
        self._steps_at_once = 0
        while self._timers and self._timers[0][0] <= self._now:
            self._enqueue(heappop(self._timers)[2])

    def _enqueue(self, handle: SimHandle) -> None:
        if handle.node in self._killed:
            self._retained.append(handle)
            return
        queue = self._queues.get(handle.node)
        if queue is None:
            queue = self._queues[handle.node] = deque()
        queue.append(handle)

    # -- for asyncio

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        handle = SimHandle(self._now, callback, args, _given(context))
        self._enqueue(handle)
        return handle

    call_soon_threadsafe = call_soon  # there is one thread

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        handle = SimHandle(when, callback, args, _given(context))
        self._order += 1
        heappush(self._timers, (when, self._order, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.on_error is not None:
            self.on_error(context)


def _given(context: Context | None) -> Context:
    return copy_context() if context is None else context  # an empty context is false
