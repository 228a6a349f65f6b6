"""The network between nodes and a server: calls fail, lose their reply, or arrive after their caller gave up."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from onthedot.client.portal import run_without_loop
from onthedot.errors import StoreUnavailable
from onthedot.stores.contract import Hint, Store, StoreTraits
from tests.sim.clock import SimClock
from tests.sim.faults import Faults
from tests.sim.invariants import ExecutedCall, StoreCheck
from tests.sim.loop import SimLoop
from tests.sim.loss_check import LossCheck

NETWORK = "network"
"""The node of requests that are under way: they arrive although their sender has died."""

PATIENCE = 4.0  # seconds after which a caller gives up
VERBS = frozenset(
    """
    add turn note cancel lift adopt revive heartbeat close_session put_schedules put_limits fire delete_schedules purge
    signal subscribe get results find notes tally position schedules limits sessions changes signals counters
    write_series read_series
    """.split()  # noqa: SIM905 -- read as a block
)


Args = tuple[Any, ...]


class Reply(NamedTuple):
    result: Any
    now: float  # the store's time when it was executed, in ms


class Network:
    """Delivers calls to the server, and reports each one that the server has executed."""

    def __init__(self, loop: SimLoop, clock: SimClock, faults: Faults, server: Store, check: StoreCheck) -> None:
        """clock: the server's."""
        self.loop = loop
        self.clock = clock
        self.faults = faults
        self.server = server
        self._check = check
        self.losses: LossCheck = LossCheck()
        self.trace: Callable[[str, str], None] | None = None
        self._streams: list[FaultHints] = []

    def send(
        self, node: str, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any], reply: asyncio.Future[Any]
    ) -> None:
        fate = self.faults.of_call(node, verb)
        if self.trace is not None:
            self.trace(node, f"{verb} {fate.kind}{shown(*args)}")
        if fate.kind == "refused":
            error = StoreUnavailable(f"{verb}: the server is not reached", stored=False)
            self.loop.call_as(NETWORK, fate.request, partial(_fail, reply, error))
            return
        deliver = partial(self._execute, self.server, node, verb, args, kwargs, reply, fate.kind, fate.reply)
        self.loop.call_as(NETWORK, fate.request, deliver)

    def _execute(
        self,
        server: Store,
        node: str,
        verb: str,
        args: Args,
        kwargs: dict[str, Any],
        reply: asyncio.Future[Reply],
        kind: str,
        delay: float,
    ) -> None:
        answer: Callable[[], None]
        if server is not self.server:  # its connections are gone, and what was under way on them
            _fail(reply, StoreUnavailable(f"{verb}: connection lost"))
            return
        expected = self._check.holds(args[1]) if verb == "turn" else ()
        try:
            result = run_without_loop(getattr(server, verb)(*args, **kwargs))
        except Exception as error:
            answer = partial(_fail, reply, error)
        else:
            if self.trace is not None:
                self.trace(NETWORK, f"{verb} of {node} executed:{shown(result)}")
            self._check.committed([ExecutedCall(verb, args, result, expected)])
            answer = partial(_succeed, reply, Reply(result, self.clock.now()))
        if kind == "reset":
            answer = partial(_fail, reply, StoreUnavailable(f"{verb}: connection reset before the reply"))
        if kind in ("sent", "reset"):
            self.loop.call_as(NETWORK, delay, partial(self._reply, node, answer))

    def _reply(self, node: str, answer: Callable[[], None]) -> None:
        if not self.faults.is_cut(node):
            answer()

    def listen(self, stream: FaultHints) -> None:
        self._streams.append(stream)
        self.loop.spawn(NETWORK, self._pump(stream))

    async def _pump(self, stream: FaultHints) -> None:
        hints = self.server.hints(stream.session)
        async for hint in hints:
            if stream.closed:
                break
            if self.faults.is_cut(stream.node):
                stream.push(None)
                break
            for delay in (0.0,) if hint.resync else self.faults.of_hint():
                self.loop.call_as(NETWORK, delay, partial(stream.push, hint))
        await hints.aclose()

    def replace(self, server: Store) -> None:
        """Another server answers from now on; all streams of hints break."""
        self.server = server
        for stream in self._streams:
            stream.push(None)
        self._streams.clear()


class FaultStore:
    """The store as one node reaches it."""

    def __init__(self, network: Network, node: str, lease_ms: int, *, cancel_safe: bool) -> None:
        self.traits: StoreTraits = StoreTraits(shared=True, cancel_safe=cancel_safe, lease_ms=lease_ms)
        self._network = network
        self._node = node
        self._time = (network.clock.now(), network.loop.time())  # the store's at the last reply, and ours

    def __getattr__(self, name: str) -> Any:
        if name in VERBS:
            return partial(self._call, name)
        raise AttributeError(name)

    def earliest_now(self) -> float:
        now, received_at = self._time
        return now + (self._network.loop.time() - received_at) * 1000

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def _call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        loop = self._network.loop
        reply = loop.create_future()
        self._network.send(self._node, verb, args, kwargs, reply)
        error = StoreUnavailable(f"{verb}: no reply within {PATIENCE:g} s")
        timer = loop.call_later(PATIENCE, _fail, reply, error)
        try:
            result, now = await reply
        finally:
            timer.cancel()
        self._time = (now, loop.time())
        if verb == "turn" and result.claim is not None:
            self._network.losses.received(self._node, result.claim)
        return result

    def hints(self, session: str) -> FaultHints:
        return FaultHints(self._network, self._node, session)


class FaultHints:
    """A stream of hints that arrive late, twice or never. It breaks when its node is cut off."""

    def __init__(self, network: Network, node: str, session: str) -> None:
        self._network = network
        self.node = node
        self.session = session
        self.closed: bool = False
        self._is_open = False
        self._hints: list[Hint | None] = []  # None: the connection is broken
        self._arrived = asyncio.Event()

    def push(self, hint: Hint | None) -> None:
        self._hints.append(hint)
        self._arrived.set()

    def __aiter__(self) -> FaultHints:
        return self

    async def __anext__(self) -> Hint:
        if not self._is_open:
            if self._network.faults.is_cut(self.node):
                raise StoreUnavailable("hints: the server is not reached")
            self._is_open = True
            self._network.listen(self)
        while not self._hints:
            self._arrived.clear()
            await self._arrived.wait()
        hint = self._hints.pop(0)
        if hint is None:
            raise StoreUnavailable("hints: connection lost")
        return hint

    async def aclose(self) -> None:
        self.closed = True


def _succeed(reply: asyncio.Future[Reply], result: Reply) -> None:
    if not reply.done():
        reply.set_result(result)


def _fail(reply: asyncio.Future[Any], error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)


def shown(*values: Any) -> str:
    """Values in a line of the trace. A record or task is shown by its source and the end of its uuid."""
    return "".join(f" {_SHORT.sub(_short, repr(value))[:600]}" for value in values)


_SHORT = re.compile(
    r"(?:Record|NewTask)\(uuid='(?P<uuid>[^']*)', source='(?P<source>[^']*)'.*?(?:hops=\d+\)\)|reply_to=[^)]*\)\))"
)


def _short(found: re.Match[str]) -> str:
    return f"{found['source']}:{found['uuid']}"
