"""A node: one process that adds tasks and runs a worker. A crash ends a life of it; a restart begins the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from onthedot import App, TaskContext
from onthedot.engine.worker import Worker
from onthedot.errors import StoreError
from onthedot.observability.logs import LogObserver
from onthedot.stores.contract import Store, StoreIdentity
from tests.sim.app import BURST_SLOTS, SLOTS, RunEvents, Tasks, new_app
from tests.sim.clock import SimClock
from tests.sim.flow_acts import FlowActor, FlowWorld
from tests.sim.flow_app import add_flow_tasks
from tests.sim.ids import stream, uuids
from tests.sim.loop import SimLoop
from tests.sim.loss_check import LossCheck
from tests.sim.run_log import RunLog, RunStart

_FLOWS = 0.8  # of what a node does is about flows, with `--flows`
_BURSTS = 0.03  # of what a node does adds many tasks, with `--bursts`
_MOST_AT_ONCE = 400
_RETRY = 0.5  # seconds between two tries to start
_MAX_STOP = 20.0  # seconds in which the process is not paused: stop_timeout, grace, the last turn, closing the session


class SimObserver(LogObserver):
    """Notes errors of the loops; writes nothing."""

    def __init__(
        self, clock: SimClock, on_error: Callable[[str, BaseException], None], on_data_lost: Callable[[], None]
    ) -> None:
        super().__init__(None, clock=clock)
        self._on_error = on_error
        self._on_data_lost = on_data_lost

    def store_failed(self, operation: str, error: BaseException) -> None:
        self._on_error(operation, error)

    def data_lost(self, store: str, before: StoreIdentity, after: StoreIdentity) -> None:
        self._on_data_lost()


@dataclass(eq=False)
class World:
    """The objects that all nodes share.

    store: makes the store as one life of a node reaches it, with the clock of the node
    """

    seed: int
    loop: SimLoop
    lease: float
    store: Callable[[str, SimClock], Store]
    store_clock: SimClock
    run_log: RunLog
    on_error: Callable[[str, str, BaseException], None]
    on_refused: Callable[[str, bool | None], None]  # an add has raised; None: it may be stored
    is_lost: Callable[[str], bool]  # the data were replaced while the reply of its add was under way
    note: Callable[[str, str], None]  # a line of the trace
    losses: LossCheck
    worker_factory: Callable[..., Worker] = Worker
    poll_interval: float = 5.0
    max_skew: float = 60_000.0  # ms between the clock of a node and that of the store
    slots: int = SLOTS
    acknowledged: dict[str, str] = field(default_factory=dict)  # uuid → source
    cancelled: set[str] = field(default_factory=set)
    adding: bool = True
    flows: FlowWorld | None = None  # None: nodes add plain tasks only


class Node:
    def __init__(self, world: World, index: int) -> None:
        self._world = world
        self._index = index
        self._life = 0
        self._chance = stream(world.seed, f"node {index}")
        self.app: App | None = None
        self.clock: SimClock = SimClock(world.loop)
        self.is_up: bool = False
        self.is_stopping: bool = False

    @property
    def name(self) -> str:
        """Of this life."""
        return f"n{self._index}.{self._life}"

    @property
    def is_running(self) -> bool:
        """Its worker runs."""
        return self.is_up and self.app is not None and self.app.runtime.host.status == "running"

    def start(self) -> None:
        self.app = None
        self._life += 1
        self.is_up = True
        self.is_stopping = False
        skew = self._chance.uniform(-1, 1) if self._index else 0.0  # the first one declares the first window
        self.clock = SimClock(self._world.loop, skew * self._world.max_skew)
        self._world.loop.spawn(self.name, self._live(self.name)).add_done_callback(self._on_end)

    def _on_end(self, life: asyncio.Task[Any]) -> None:
        """Only a crash ends a life."""
        self._world.run_log.report("node", f"{self.name} has ended: {life.exception()!r}")

    def crash(self) -> None:
        self.is_up = False
        self._world.loop.kill(self.name)
        self._world.run_log.forget(self.name)

    # -- inside the node

    def _new_app(self, name: str) -> tuple[App, Tasks]:
        world = self._world
        app, tasks = new_app(world.lease, world.slots, RunEvents(self._began, self._ended))
        if world.flows is not None:
            tasks |= add_flow_tasks(app, world.flows.events())
        runtime = app.runtime
        observer = SimObserver(
            self.clock, lambda where, error: world.on_error(name, where, error), lambda: world.losses.reported(name)
        )
        runtime.use(
            replace(
                runtime.config,
                clock=self.clock,
                logs=observer,
                random=stream(world.seed, f"random {name}"),
                new_uuid=uuids(world.seed, name),
                worker_factory=world.worker_factory,
                poll_interval=world.poll_interval,
            )
        )
        runtime.use_store(world.store(name, self.clock))
        return app, tasks

    async def _live(self, name: str) -> None:
        self.app, self.tasks = self._new_app(name)
        async with self.app:
            await self._start_worker()
            while True:
                await asyncio.sleep(self._chance.expovariate(4))
                if self._world.adding:
                    await self._act(self._chance)

    async def _start_worker(self) -> None:
        while True:
            try:
                await self.app.runtime.host.start("loop")
            except StoreError:
                await asyncio.sleep(_RETRY)
            else:
                return

    async def restart_worker(self, pause: float) -> None:
        """Stops in order, and starts again."""
        self.is_stopping = True
        loop = self._world.loop
        began = loop.time() - loop.pauses[self.name]
        await self.app.runtime.host.stop()
        self._world.losses.worker_ended(self.name)
        took = loop.time() - loop.pauses[self.name] - began
        if took > _MAX_STOP:
            self._world.run_log.report("stop", f"{self.name} took {took:.1f} s to stop")
        await asyncio.sleep(pause)
        await self._start_worker()
        self.is_stopping = False

    async def pause_schedule(self, name: str) -> None:
        await self.app.schedules.pause(name)

    async def _act(self, chance: Random) -> None:
        if self._world.flows is not None and chance.random() < _FLOWS:
            await self._act_on_flows(self._world.flows, chance)
        elif self._world.slots == BURST_SLOTS and chance.random() < _BURSTS:
            await self._add_burst(chance)
        elif chance.random() < 0.1 and self._world.acknowledged:
            await self._cancel(chance)
        else:
            await self._add(chance)

    async def _act_on_flows(self, flows: FlowWorld, chance: Random) -> None:
        actor = FlowActor(flows, self.app, self.tasks, self._world.cancelled)
        try:
            uuid = await actor.act(chance)
        except StoreError as error:
            for each in error.uuids:
                self._world.on_refused(each, error.stored)
        else:
            if uuid is not None and not self._world.is_lost(uuid):
                self._world.acknowledged[uuid] = "a flow"

    async def send_last_signals(self, flows: FlowWorld) -> None:
        await flows.send_last_signals(self.app)

    async def _cancel(self, chance: Random) -> None:
        uuid = chance.choice(list(self._world.acknowledged)[-20:])
        self._world.cancelled.add(uuid)
        with suppress(StoreError):  # then it may be cancelled or not
            await self.app.cancel(uuid)

    async def _add(self, chance: Random) -> None:
        source = chance.choice(_ADDED if self._world.slots == SLOTS else _ADDED_WITH_BURSTS)
        argument: Any = chance.randrange(1000)
        if source in ("laned", "single"):
            argument = chance.choice("ab")
        after = chance.choice((None, None, None, 0, 0.5, 2.0))
        await self.add(source, argument, after)

    async def _add_burst(self, chance: Random) -> None:
        """More tasks than slots. They end so soon that others are claimed ahead."""
        brief: Any = self.tasks["brief"]
        try:
            handles = await brief.enqueue_many([(number,) for number in range(chance.randrange(_MOST_AT_ONCE))])
        except StoreError as error:
            for each in error.uuids:
                self._world.on_refused(each, error.stored)
            return
        for handle in handles:
            if not self._world.is_lost(handle.uuid):
                self._world.acknowledged[handle.uuid] = "brief"

    async def add(self, source: str, argument: Any, after: float | None = None) -> str | None:
        """Adds a task; its uuid is returned if the store has acknowledged it."""
        world = self._world
        enqueuer: Any = self.tasks[source]
        if after is not None:
            uuid = self.app.runtime.config.new_uuid()
            world.run_log.promised[uuid] = world.store_clock.now() + after * 1000
            enqueuer = enqueuer.options(uuid=uuid, after=after)
        try:
            handle = await enqueuer.enqueue(argument)
        except StoreError as error:
            for each in error.uuids:
                world.on_refused(each, error.stored)
            return None
        if not world.is_lost(handle.uuid):
            world.acknowledged[handle.uuid] = source
        return str(handle.uuid)

    def _began(self, task: TaskContext) -> None:
        run = RunStart(task.uuid, task.source, self.name, task.fence, self._world.loop.time())
        self._world.note(self.name, f"began {task.source}:{task.uuid} fence {task.fence}")
        self._world.run_log.began(run)

    def _ended(self, task: TaskContext, raised: bool) -> None:
        self._world.note(self.name, f"ended {task.source}:{task.uuid} fence {task.fence}")
        self._world.run_log.ended(task.uuid, self.name, task.fence, raised=raised)


_ADDED_WITH_BURSTS = ("short", "rated", "flaky", "failing", "unstorable", "unreadable")
"""They end at once: while a task runs, nothing is claimed ahead."""
_ADDED = (
    "short", "short", "long", "laned", "laned", "limited", "rated", "rated", "single", "single", "parent", "parent",
    "flaky", "failing", "unstorable", "unreadable",
)  # fmt: skip
