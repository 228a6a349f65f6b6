"""One seed: nodes work while faults happen, the faults stop, and everything that was acknowledged must have ended."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from onthedot.errors import StoreError
from onthedot.stores.contract import Store
from onthedot.stores.memory.store import MemoryStore
from tests.sim.app import CAPS, INTERVAL, LANE_CAP
from tests.sim.clock import SimClock
from tests.sim.fault_store import PATIENCE, FaultStore, Network
from tests.sim.faults import KINDS, MAX_LATE, OF_STORE, Faults, NodeFault
from tests.sim.ids import stream
from tests.sim.invariants import ENDED, RunLog, RunStart, StoreCheck, Violation
from tests.sim.loop import SimLoop
from tests.sim.node import Node, World
from tests.sim.planted_bugs import NO_BUG, POLL, PlantedBug
from tests.sim.sqlite import SqliteFile

_EXPIRING = frozenset({"single"})


@dataclass(frozen=True)
class Options:
    """What a replay needs. Shrinking takes parts of it away."""

    seed: int
    kinds: tuple[str, ...] = KINDS
    nodes: int = 0  # 0: the seed decides
    seconds: float = 25.0
    store: str = "memory"


@dataclass
class Result:
    digest: int
    steps: int
    tasks: int
    runs: int
    violation: str | None = None
    trace: list[str] = field(default_factory=list)


class QuietTask(NamedTuple):
    source: str
    added_at: float  # when the add was acknowledged


class Scenario:
    def __init__(self, options: Options, bug: PlantedBug = NO_BUG, *, trace: bool = False) -> None:
        self._options = options
        self._bug = bug
        chance = stream(options.seed, "scenario")
        self.lease: float = chance.choice((2.0, 4.0, 8.0))
        self._cancel_safe = chance.random() < 0.5
        nodes = options.nodes or chance.choice((2, 3, 3, 4))
        self.loop = SimLoop(stream(options.seed, "steps"))
        self.faults = Faults(options.seed, self.loop, sorted(OF_STORE[options.store] & set(options.kinds)))
        self._violations: list[Violation] = []
        self._trace: list[str] | None = [] if trace else None
        self._disturbed_until: dict[str, float] = {}
        self._is_quiet = False
        self._faults_ended_at = 0.0
        self.store_clock = SimClock(self.loop)
        self._network: Network | None = None
        self._file: SqliteFile | None = None
        if options.store == "memory":
            self.check = self._new_server()
        else:
            self.check = self._new_file()
        self.run_log = RunLog(
            self.loop.time, self.store_clock, self.loop.is_live, self._is_justified, self.check.fence_of, self.report
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
            self._note,
            bug.worker_factory,
            bug.poll_interval,
            max_skew=60_000.0 if self._file is None else 0.0,
        )
        self.nodes = [Node(self.world, index) for index in range(nodes)]

    def _new_server(self) -> StoreCheck:
        server: Store = MemoryStore(self.store_clock)
        if self._bug.server is not None:
            server = self._bug.server(server, self.store_clock, self.lease)
        check = StoreCheck(server, self.store_clock, self.report)
        self._network = Network(self.loop, self.store_clock, self.faults, server, check)
        self._network.trace = self._tracer
        return check

    def _new_file(self) -> StoreCheck:
        self._file = SqliteFile(self._options.seed, self.loop, self.store_clock, self.faults, self._bug.parts)
        self._file.on_killed = self._on_killed
        check = StoreCheck(self._file.view(), self.store_clock, self.report)
        self._file.check = check
        self._file.trace = self._tracer
        return check

    def _on_killed(self, name: str) -> None:
        """A process died between two statements."""
        (node,) = [node for node in self.nodes if node.name == name]
        self._note(name, "died between two statements")
        self._crash(node, 1.0)

    def _crash(self, node: Node, pause: float) -> None:
        name = node.name
        node.crash()
        if self._file is not None:
            self._file.kill(name)
        self._disturb(name, 0.0)
        self.loop.call_as("world", pause, partial(self._revive, node))

    def _cut_power(self, pause: float) -> None:
        assert self._file is not None
        up = [node for node in self.nodes if node.is_up]
        for node in up:
            self._crash(node, pause)
        self.check.reload(self._file.cut_power())
        self.run_log.forget_leases()
        lost = [uuid for uuid in self.world.acknowledged if uuid not in self.check.states]
        if lost:
            self.report("I1", f"{len(lost)} acknowledged tasks are gone after a power cut: {lost[:3]}")

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
            if self._file is not None:
                self._file.close()
        runs = sum(map(len, self.run_log.starts.values()))
        trace = list(self._trace or [])
        return Result(self.loop.digest, self.loop.steps, len(self.check.states), runs, violation, trace)

    # -- what the parts report

    def report(self, invariant: str, text: str) -> None:
        self._violations.append(Violation(invariant, text))

    def _after_step(self, node: str) -> None:
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

    @property
    def _tracer(self) -> Callable[[str, str], None] | None:
        return None if self._trace is None else self._note

    def _note(self, node: str, text: str) -> None:
        if self._trace is not None:
            self._trace.append(f"{self.loop.time() - 1000:9.4f} {node:8} {text}")

    def _store_of(self, node: str, clock: SimClock) -> Store:
        store: Any
        if self._file is not None:
            store = self._file.store_of(node, clock)
        else:
            assert self._network is not None
            store = FaultStore(self._network, node, int(self.lease * 1000), cancel_safe=self._cancel_safe)
        if self._bug.client is not None:
            store = self._bug.client(store, clock, self.lease)
        return store

    def _is_justified(self, run: RunStart) -> bool:
        """A fault of its node, or of its heartbeats, explains why a run did not end its task."""
        if self._disturbed_until.get(run.node, 0) >= run.at:
            return True
        return self.faults.heartbeat_faults.get(run.node, 0) >= run.at - self.lease

    # -- the course of the scenario

    async def _main(self) -> None:
        options = self._options
        for node in self.nodes:
            node.start()
            await asyncio.sleep(0.2)
        began = self.loop.time()
        for fault in self.faults.of_nodes(len(self.nodes), options.seconds):
            await asyncio.sleep(max(0.0, began + fault.at - self.loop.time()))
            self._apply(fault)
        await asyncio.sleep(max(0.0, began + options.seconds - self.loop.time()))
        await self._end_faults()
        await self._await_ends(self.world.acknowledged, 4 * self.lease + 40)
        self._check_ends()
        await self._quiet_phase()

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
                if self._file is None:  # the lock of a paused process shows that it lives
                    self._disturb(node.name, span)
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
                assert self._file is not None
                self._file.apply(fault, node.name)

    def _disturb(self, node: str, seconds: float) -> None:
        """Until then, what this node runs may have to run again."""
        until = self.loop.time() + seconds + 0.01
        self._disturbed_until[node] = max(self._disturbed_until.get(node, 0), until)

    def _revive(self, node: Node) -> None:
        if not node.is_up:
            node.start()

    def _restart(self, node: Node, pause: float) -> None:
        if not node.is_stopping and node.is_running:
            self.loop.spawn(node.name, node.restart_worker(pause))

    async def _end_faults(self) -> None:
        self._note("world", "the faults end")
        self._faults_ended_at = self.loop.time()
        self.faults.end()
        if self._file is not None:
            self._file.end_faults()
        self.world.adding = False
        for node in self.nodes:
            self.loop.resume(node.name)
            self._revive(node)

    async def _await_ends(self, uuids: dict[str, str], seconds: float) -> None:
        until = self.loop.time() + seconds
        while pending := [uuid for uuid in uuids if self.check.states.get(uuid) not in ENDED]:
            if self.loop.time() > until:
                shown = [(uuid, uuids[uuid], self.check.states.get(uuid)) for uuid in pending[:5]]
                self.report("I1", f"{len(pending)} acknowledged tasks have not ended after {seconds:g} s: {shown}")
            await asyncio.sleep(0.5)

    def _check_ends(self) -> None:
        for uuid, state in self.check.states.items():
            source = self.check.sources[uuid]
            if state == "failed" and source != "failing":
                self.report("I1", f"{source} {uuid} has failed, and was not made to")
            if state == "cancelled" and uuid not in self.world.cancelled and source not in _EXPIRING:
                self.report("I1", f"{source} {uuid} was cancelled by nobody")
        self._check_children()
        self._check_windows()

    def _check_children(self) -> None:
        states = self.check.states
        sources = Counter(source for uuid, source in self.check.sources.items() if states[uuid] == "succeeded")
        children = sum(source == "child" for source in self.check.sources.values())
        if sources["parent"] != children:
            self.report("I4", f"{sources['parent']} parents have succeeded, and there are {children} children")

    def _check_windows(self) -> None:
        schedule = self.check.schedule("tick")
        assert schedule.next_at is not None
        expected = round((schedule.next_at - self.check.first_window["tick"]) / (INTERVAL * 1000))
        fired = len(self.check.windows["tick"])
        if not expected == fired == schedule.runs:
            self.report("I5", f"tick: {expected} windows, {fired} fired, {schedule.runs} runs")

    async def _quiet_phase(self) -> None:
        """Only slow replies and dropped hints: long tasks run once, short ones start and end soon."""
        await self._await_late_calls()
        self._note("world", "the quiet phase begins")
        self._is_quiet = True
        self._spawn(self.nodes[0], self.nodes[0].pause_schedule("tick"))  # its windows would replace the poll
        chance = stream(self._options.seed, "quiet")
        added: dict[str, QuietTask] = {}
        sources = [("long", 0), ("long", 1), *[("laned", "a")] * LANE_CAP, *[("limited", 0)] * CAPS["limited"]]
        for source, argument in [*sources, *[("short", number) for number in range(12)]]:
            self._add(source, argument, added)
            if source == "short":
                await asyncio.sleep(chance.uniform(0.2, 1.5))
        await asyncio.sleep(1.0)
        await self._await_ends({uuid: task.source for uuid, task in added.items()}, 4 * self.lease + 40)
        for uuid, task in added.items():
            self._check_quiet(uuid, task)

    async def _await_late_calls(self) -> None:
        """Calls from the time of the faults may still be executed, or wait for a reply."""
        await asyncio.sleep(max(0.0, self._faults_ended_at + MAX_LATE + PATIENCE - self.loop.time()))

    def _check_quiet(self, uuid: str, task: QuietTask) -> None:
        starts = self.run_log.starts[uuid]
        if len(starts) != 1:
            self.report("quiet", f"{task.source} {uuid} ran {len(starts)} times without a fault")
            return
        if starts[0].at - task.added_at > POLL + 1:
            self.report("quiet", f"{task.source} {uuid} started {starts[0].at - task.added_at:.1f} s after its add")
        ended_at = self.run_log.ended_at[uuid]
        settled_after = self.check.ended_at[uuid] - self.store_clock.at(ended_at)
        if settled_after > 500:
            self.report("quiet", f"{task.source} {uuid} was settled {settled_after:.0f} ms after its run")

    def _add(self, source: str, argument: Any, added: dict[str, QuietTask]) -> None:
        node = self.nodes[len(added) % len(self.nodes)]

        async def add() -> None:
            uuid = await node.add(source, argument)
            if uuid is None:
                self.report("quiet", f"an add of {source} failed without a fault")
            else:
                added[uuid] = QuietTask(source, self.loop.time())

        self._spawn(node, add())

    def _spawn(self, node: Node, coroutine: Coroutine[Any, Any, None]) -> None:
        self.loop.spawn(node.name, coroutine)


def run_seed(options: Options, bug: PlantedBug = NO_BUG, *, trace: bool = False) -> Result:
    """Runs one seed. What its nodes held is collected at the end, when `finally` clauses cannot do anything."""
    hook = sys.unraisablehook
    gc.disable()
    try:
        scenario = Scenario(options, bug, trace=trace)
        result = scenario.run()
        sys.unraisablehook = lambda _: None
        scenario.loop.on_error = None
        del scenario
        for _ in range(3):  # closing a coroutine may make objects that refer to others
            gc.collect()
        return result
    finally:
        sys.unraisablehook = hook
        gc.enable()
