"""A server with a memory store, behind the network. Its data may be lost, or go back to an older state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from msgspec.structs import replace

from onthedot.model.uuid7 import new_uuid
from onthedot.stores.contract import ClaimRequest, Completed, Outcome, TurnResult
from onthedot.stores.memory.store import MemoryStore
from onthedot.stores.memory.tables import MemoryTables
from tests.sim.app import UNSTORABLE
from tests.sim.clock import SimClock
from tests.sim.fault_store import NETWORK, FaultStore, Network
from tests.sim.faults import Faults, NodeFault
from tests.sim.invariants import Report, StoreCheck, StoreCopy
from tests.sim.loop import SimLoop
from tests.sim.loss_check import LossCheck


class SimMemoryStore(MemoryStore):
    """A memory store that can be copied, cannot keep one outcome and cannot read one record (I11)."""

    def __init__(self, clock: SimClock, tables: type[MemoryTables] | MemoryTables = MemoryTables) -> None:
        super().__init__(clock)
        if isinstance(tables, MemoryTables):
            self._tables = tables
        elif tables is not MemoryTables:
            self._tables = tables(new_uuid(), clock.wall_clock_jump)  # new data have a new identity
        self._sim_clock = clock

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        for outcome in outcomes:
            if isinstance(outcome, Completed) and UNSTORABLE.encode() in outcome.result:
                raise ValueError("this outcome cannot be stored")
        result = await super().turn(session, outcomes, request)
        if result.claim is None:
            return result
        tasks = [record for record in result.claim.tasks if record.source != "unreadable"]
        unreadable = [record for record in result.claim.tasks if record.source == "unreadable"]
        chores = [replace(each, history=replace(each.history, reason="undecodable")) for each in unreadable]
        return replace(result, claim=replace(result.claim, tasks=tasks, chores=[*result.claim.chores, *chores]))

    def copy(self) -> SimMemoryStore:
        clock = self._sim_clock
        return SimMemoryStore(clock, deepcopy(self._tables, {id(clock): clock}))


class MemoryServer:
    max_skew = 60_000.0  # ms between the clocks of the server and a node
    bad_sources = frozenset({"unstorable", "unreadable"})  # their tasks fail, alone

    def __init__(
        self,
        loop: SimLoop,
        clock: SimClock,
        faults: Faults,
        lease: float,
        wrap: Callable[[Any, SimClock, float], Any] | None,
        report: Report,
        *,
        cancel_safe: bool,
    ) -> None:
        """wrap: plants a bug in the store. cancel_safe: as in `StoreTraits`."""
        self._loop = loop
        self._clock = clock
        self._lease = lease
        self._wrap = wrap
        self._cancel_safe = cancel_safe
        self._store = SimMemoryStore(clock)
        server = self._wrapped()
        self.check: StoreCheck = StoreCheck(server, clock, report)
        self.network = Network(loop, clock, faults, server, self.check)
        self.losses: LossCheck = self.network.losses
        self.on_lost: Callable[[], None] | None = None

    def _wrapped(self) -> Any:
        return self._store if self._wrap is None else self._wrap(self._store, self._clock, self._lease)

    def trace_to(self, trace: Callable[[str, str], None]) -> None:
        self.network.trace = trace

    def store_of(self, node: str, clock: SimClock) -> Any:
        return FaultStore(self.network, node, int(self._lease * 1000), cancel_safe=self._cancel_safe)

    def kill(self, node: str) -> None:
        """A server notices nothing but missing heartbeats."""

    def apply(self, fault: NodeFault, node: str) -> None:
        """The data are replaced by none, or by a copy that was made a moment before."""
        if fault.kind == "loss":
            self._replace(SimMemoryStore(self._clock), StoreCopy({}, set(), {}, has_limits=False))
        else:
            restore = partial(self._replace, self._store.copy(), self.check.copy())
            self._loop.call_as(NETWORK, fault.size * 5, restore)

    def _replace(self, store: SimMemoryStore, copy: StoreCopy) -> None:
        assert self.on_lost is not None
        self._store = store
        server = self._wrapped()
        self.network.replace(server)
        self.check.reload(server, copy)
        self.on_lost()

    def end_faults(self) -> None:
        pass

    def close(self) -> None:
        pass
