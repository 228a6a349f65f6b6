"""Acts of nodes with `--flows`: they add flows and durable tasks, signal, cancel and retry them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from onthedot import App
from onthedot.errors import StoreError, TaskNotFound
from tests.sim.app import Tasks
from tests.sim.flow_app import SIGNAL, SIGNALS_TAKEN, FlowEvents, new_flow
from tests.sim.flow_checks import ENDED, FlowCheck
from tests.sim.invariants import StoreCheck

_DURABLE = ("stepping", "waiting", "impatient", "calling")
_SIGNALLED = ("waiting", "impatient")
_RECENT = 10


@dataclass(eq=False)
class FlowWorld:
    """The flows as all nodes know them."""

    check: StoreCheck
    flows: list[str] = field(default_factory=list)  # acknowledged
    signalled: list[str] = field(default_factory=list)  # tasks that may wait for signals
    mended: set[str] = field(default_factory=set)  # flows that were retried
    sent: int = 0  # signals; their payloads are numbers

    @property
    def flow_check(self) -> FlowCheck:
        return self.check.flows

    def events(self) -> FlowEvents:
        return FlowEvents(
            lambda text: self.check.report("flows", text),
            lambda task, name: self.flow_check.stepped(task, name),
            lambda uuid: self._flow_of(uuid) in self.mended,
        )

    def _flow_of(self, uuid: str) -> str:
        links = self.flow_check.links.get(uuid)
        return uuid if links is None or links.flow is None else links.flow

    def unfinished(self) -> Mapping[str, str]:
        """Tasks with links, and durable ones, that are in the store: with their sources. All of them must end."""
        sources = self.check.sources
        kept = [uuid for uuid in self.check.states if uuid in self.flow_check.links or sources[uuid] in _DURABLE]
        return {uuid: sources[uuid] for uuid in kept}

    def may_be_cancelled(self, uuid: str, cancelled: set[str]) -> bool:
        """cancelled: tasks and flows that a node has cancelled."""
        flow = self._flow_of(uuid)
        return bool({flow, uuid} & (cancelled | self.mended)) or self.flow_check.may_be_cancelled(
            uuid, self.check.states
        )

    async def send_last_signals(self, app: App) -> None:
        """Every task that waits without a limit gets as many signals as it takes."""
        for uuid, state in list(self.check.states.items()):
            if self.check.sources[uuid] == "waiting" and state not in ENDED:
                for _ in range(SIGNALS_TAKEN):
                    self.sent += 1
                    await app.operations.flow(uuid).signal(SIGNAL, self.sent)


class FlowActor:
    """Acts for one life of a node."""

    def __init__(self, world: FlowWorld, app: App, tasks: Tasks, cancelled: set[str]) -> None:
        self._world = world
        self._app = app
        self._tasks: Any = tasks
        self._cancelled = cancelled

    async def act(self, chance: Random) -> str | None:
        """The uuid of a task that was added, if one was."""
        draw = chance.random()
        if draw < 0.4:
            return await self._add_flow(chance)
        if draw < 0.65:
            return await self._add_durable(chance)
        with suppress(StoreError, TaskNotFound):  # then it has happened, or not
            if draw < 0.85:
                await self._signal(chance)
            elif draw < 0.91:
                await self._cancel(chance)
            else:
                await self._retry(chance)
        return None

    async def _add_flow(self, chance: Random) -> str:
        handle = await new_flow(self._tasks, chance).enqueue()
        self._world.flows.append(handle.uuid)
        return handle.uuid

    async def _add_durable(self, chance: Random) -> str:
        source = chance.choice(_DURABLE)
        handle = await self._tasks[source].enqueue(chance.randrange(1000))
        if source in _SIGNALLED:
            self._world.signalled.append(handle.uuid)
        return str(handle.uuid)

    async def _signal(self, chance: Random) -> None:
        if self._world.signalled:
            uuid = chance.choice(self._world.signalled[-_RECENT:])
            self._world.sent += 1
            await self._app.operations.flow(uuid).signal(SIGNAL, self._world.sent)

    async def _cancel(self, chance: Random) -> None:
        uuids = (self._world.flows + self._world.signalled)[-_RECENT:]
        if uuids:
            uuid = chance.choice(uuids)
            self._cancelled.add(uuid)
            await self._app.operations.flow(uuid).cancel()

    async def _retry(self, chance: Random) -> None:
        failed = [
            uuid for uuid in self._world.flows[-30:] if self._world.check.states.get(uuid) in ("failed", "cancelled")
        ]
        if failed:
            uuid = chance.choice(failed)
            self._world.mended.add(uuid)
            await self._app.operations.flow(uuid).retry()
