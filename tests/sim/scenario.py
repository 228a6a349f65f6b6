"""One seed: nodes work while faults happen, the faults stop, and everything that was acknowledged must have ended."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from onthedot.errors import StoreError
from onthedot.stores.contract import Store
from tests.sim.app import BURST_SLOTS, SLOTS
from tests.sim.clock import SimClock
from tests.sim.end_checks import EndChecks, QuietPhase
from tests.sim.fault_store import PATIENCE
from tests.sim.faults import KINDS, MAX_LATE, MAX_ROUND_TRIP, OF_STORE, SHORT_ROUND_TRIP, Faults, NodeFault
from tests.sim.flow_acts import FlowWorld
from tests.sim.ids import stream
from tests.sim.invariants import StoreCheck, Violation
from tests.sim.loop import SimLoop
from tests.sim.memory import MemoryServer
from tests.sim.node import Node, World
from tests.sim.planted_bugs import NO_BUG, PlantedBug
from tests.sim.run_log import RunLog, RunStart
from tests.sim.sqlite import SqliteFile


@dataclass(frozen=True)
class Options:
    """All that a replay needs. Shrinking takes parts of it away."""

    seed: int
    kinds: tuple[str, ...] = KINDS
    nodes: int = 0  # 0: the seed decides
    seconds: float = 25.0
    store: str = "memory"
    flows: bool = False  # nodes also add flows, durable tasks and signals
    bursts: bool = False  # nodes have more slots, and also add many short tasks at once


@dataclass
class Result:
    digest: int
    steps: int
    tasks: int
    runs: int
    violation: str | None = None
    trace: list[str] = field(default_factory=list)


class Scenario:
    def __init__(self, options: Options, bug: PlantedBug = NO_BUG, *, trace: bool = False) -> None:
        self._options = options
        self._bug = bug
        self._violations: list[Violation] = []
        self._trace: list[str] = []
        self._is_traced = trace
        self._is_quiet = False
        self._disturbed_until: dict[str, float] = {}
        chance = stream(options.seed, "scenario")
        self.lease: float = chance.choice((2.0, 4.0, 8.0))
        self._cancel_safe = chance.random() < 0.5
        nodes = options.nodes or chance.choice((2, 3, 3, 4))
        self.loop = SimLoop(stream(options.seed, "steps"))
        self.store_clock = SimClock(self.loop)
        slots = BURST_SLOTS if options.bursts else SLOTS
        kinds = sorted(OF_STORE[options.store] & set(options.kinds))
        round_trip = SHORT_ROUND_TRIP if options.bursts else MAX_ROUND_TRIP
        self.faults = Faults(options.seed, self.loop, kinds, round_trip)
        self._stores = self._new_stores()
        self.check: StoreCheck = self._stores.check
        if trace:
            self._stores.trace_to(self._note)
        self.run_log = RunLog(
            self.loop.time, self.store_clock, self.loop.is_live, self._is_justified, self.check, self.report, slots
        )
        self.world = World(
            options.seed,
            self.loop,
            self.lease,
            self._store_of,
            self.store_clock,
            self.run_log,
            self._on_error,
            self.check.refused,
            self.check.is_lost,
            self._note,
            self._stores.losses,
            bug.worker_factory,
            bug.poll_interval,
            self._stores.max_skew,
            slots,
        )
        if options.flows:
            self.world.flows = FlowWorld(self.check)
        self.nodes = [Node(self.world, index) for index in range(nodes)]

    def _new_stores(self) -> MemoryServer | SqliteFile:
        if self._options.store == "sqlite":
            file = SqliteFile(
                self._options.seed, self.loop, self.store_clock, self.faults, self._bug.parts, self.report
            )
            file.on_killed = self._on_killed
            return file
        server = MemoryServer(
            self.loop,
            self.store_clock,
            self.faults,
            self.lease,
            self._bug.server,
            self.report,
            cancel_safe=self._cancel_safe,
        )
        server.on_lost = self._on_lost
        return server

    def _store_of(self, node: str, clock: SimClock) -> Store:
        store: Any = self._stores.store_of(node, clock)
        if self._bug.client is not None:
            store = self._bug.client(store, clock, self.lease)
        return store

    def run(self) -> Result:
        self.loop.on_step = self._after_step
        self.loop.on_error = self._on_unhandled
        violation: str | None = None
        try:
            self.loop.run(self._main())
        except Violation as error:
            violation = str(error)
        except RuntimeError as error:
            violation = f"progress: {error}"
        finally:
            self._stores.close()
        runs = sum(map(len, self.run_log.starts.values()))
        return Result(self.loop.digest, self.loop.steps, len(self.check.sources), runs, violation, self._trace.copy())

    # -- what the parts report

    def report(self, invariant: str, text: str) -> None:
        self._violations.append(Violation(invariant, text))

    def _after_step(self) -> None:
        self.run_log.check_overlaps()
        if self._violations:
            raise self._violations[0]

    def _on_error(self, node: str, where: str, error: BaseException) -> None:
        self._note(node, f"{where} failed: {error!r}")
        if not isinstance(error, StoreError | TimeoutError):
            self.report("engine", f"{where} of {node} failed: {error!r}")
        elif self._is_quiet:
            self.report("quiet", f"{where} of {node} failed without a fault: {error!r}")

    def _on_unhandled(self, context: dict[str, Any]) -> None:
        self.report("engine", f"{context.get('message')}: {context.get('exception')!r}")

    def _note(self, node: str, text: str) -> None:
        if self._is_traced:
            self._trace.append(f"{self.loop.time() - 1000:9.4f} {node:8} {text}")

    def _is_justified(self, run: RunStart) -> bool:
        """A fault of its node, or of its heartbeats, explains why a run did not end its task."""
        if self._disturbed_until.get(run.node, 0) >= run.at:
            return True
        return self.faults.heartbeat_faults.get(run.node, 0) >= run.at - self.lease

    # -- the course of the scenario

    async def _main(self) -> None:
        for node in self.nodes:
            node.start()
            await asyncio.sleep(0.2)
        began = self.loop.time()
        for fault in self.faults.of_nodes(len(self.nodes), self._options.seconds):
            await asyncio.sleep(max(0.0, began + fault.at - self.loop.time()))
            self._apply(fault)
        await asyncio.sleep(max(0.0, began + self._options.seconds - self.loop.time()))
        self._end_faults()
        ended_at = self.loop.time()
        ends = EndChecks(self.world, self.check, self._stores.bad_sources)
        await ends.await_ends(self.world.acknowledged)
        await ends.await_schedule()
        if self.world.flows is not None:
            await self._await_calls(ended_at)
            await ends.await_ends(self.world.flows.unfinished())
        ends.check_ends()
        await self._await_calls(ended_at)
        self._note("world", "the quiet phase begins")
        self._is_quiet = True
        chance = stream(self._options.seed, "quiet")
        await QuietPhase(self.nodes, ends, self.run_log, self.store_clock, chance).run()

    async def _await_calls(self, ended_at: float) -> None:
        """Calls from the time of the faults may still be executed, or wait for a reply."""
        await asyncio.sleep(max(0.0, ended_at + MAX_LATE + PATIENCE - self.loop.time()))

    def _end_faults(self) -> None:
        self._note("world", "the faults end")
        self.faults.end()
        self._stores.end_faults()
        self.world.adding = False
        for node in self.nodes:
            self.loop.resume(node.name)
            self._start_again(node)
        if self.world.flows is not None:
            self.loop.spawn(self.nodes[0].name, self._send_last_signals(self.world.flows))

    async def _send_last_signals(self, flows: FlowWorld) -> None:
        """When calls from the time of the faults are over: a waiting task may be added until then."""
        await asyncio.sleep(MAX_LATE + PATIENCE)
        await self.nodes[0].send_last_signals(flows)

    # -- faults of nodes

    def _apply(self, fault: NodeFault) -> None:
        node = self.nodes[fault.node]
        if not node.is_up:
            return
        self._note(node.name, f"fault: {fault}")
        span = fault.size * 3 * self.lease
        match fault.kind:
            case "crash":
                self._crash(node, fault.size * 5)
            case "pause":
                self.loop.pause(node.name)
                self.loop.call_later(span, self.loop.resume, node.name)
                if self._options.store != "sqlite":  # there the lock of a paused process shows that it lives
                    self._disturb(node.name, span + MAX_ROUND_TRIP)  # its next heartbeat may be too late
            case "cut":
                self.faults.cut(node.name, span)
                self._disturb(node.name, span)
            case "mute":
                self.faults.mute(node.name, span)
                self._disturb(node.name, span)
            case "stop":
                self._disturb(node.name, 15.0)
                self._restart(node, fault.size * 2)
            case "clock":
                node.clock.jump += (fault.size - 0.5) * 120_000
            case "power":
                self._cut_power(fault.size * 3)
            case _:
                self._stores.apply(fault, node.name)

    def _disturb(self, node: str, seconds: float) -> None:
        """Until then, what this node runs may have to run again."""
        until = self.loop.time() + seconds + 0.01
        self._disturbed_until[node] = max(self._disturbed_until.get(node, 0), until)

    def _crash(self, node: Node, pause: float) -> None:
        name = node.name
        node.crash()
        self._stores.kill(name)
        self._disturb(name, 0.0)
        self.loop.call_as("world", pause, partial(self._start_again, node))

    def _start_again(self, node: Node) -> None:
        if not node.is_up:
            node.start()

    def _restart(self, node: Node, pause: float) -> None:
        if not node.is_stopping and node.is_running:
            self.loop.spawn(node.name, node.restart_worker(pause))

    def _on_killed(self, name: str) -> None:
        """A process died between two statements."""
        (node,) = [node for node in self.nodes if node.name == name]
        self._note(name, "died between two statements")
        self._crash(node, 1.0)

    # -- faults of the store

    def _cut_power(self, pause: float) -> None:
        """Acknowledged tasks are still there."""
        assert isinstance(self._stores, SqliteFile)
        for node in self.nodes:
            if node.is_up:
                self._crash(node, pause)
        self.check.reload(self._stores.cut_power(), replace(self.check.copy(), holders={}))
        self.run_log.forget_leases()
        lost = [uuid for uuid in self.world.acknowledged if uuid not in self.check.states]
        if lost:
            self.report("I1", f"{len(lost)} acknowledged tasks are gone after a power cut: {lost[:3]}")

    def _on_lost(self) -> None:
        """Tasks are gone that the old data had; workers must notice, and continue with what is there."""
        self._note("world", "the data were replaced")
        self.run_log.forget_leases()
        for node in self.nodes:
            self._disturb(node.name, self.lease)
        for uuid in list(self.world.acknowledged):
            if uuid not in self.check.states:
                del self.world.acknowledged[uuid]


_RETAINED: list[Scenario] = []


def run_seed(options: Options, bug: PlantedBug = NO_BUG, *, trace: bool = False) -> Result:
    """Runs one seed. Its scenario stays in memory: collecting a node would run `finally` clauses of what it held.

    To collect it costs more than the run, and what the clauses do keeps parts of it alive. So callers run many seeds in
    processes that end after some of them (`search.run_all`).
    """
    gc.disable()
    try:
        scenario = Scenario(options, bug, trace=trace)
        _RETAINED.append(scenario)
        result = scenario.run()
        scenario.loop.on_error = None
        return result
    finally:
        gc.freeze()  # a later collection does not look at it
        gc.enable()
