"""Checks that must hold after the faults have stopped, and in a quiet phase without faults."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from tests.sim.app import CAPS, INTERVAL, LANE_CAP
from tests.sim.clock import SimClock
from tests.sim.invariants import ENDED, StoreCheck
from tests.sim.node import Node, World
from tests.sim.planted_bugs import POLL
from tests.sim.run_log import RunLog

_EXPIRING = frozenset({"single"})
_FAILING = frozenset({"failing", "fragile"})


@dataclass(eq=False)
class EndChecks:
    """After the faults: everything that was acknowledged ends, and nothing ends otherwise than it was made to."""

    world: World
    check: StoreCheck
    bad_sources: frozenset[str]  # tasks that cannot be stored or read

    async def await_ends(self, uuids: Mapping[str, str]) -> None:
        """uuids: with their sources."""
        loop = self.world.loop
        seconds = 4 * self.world.lease + 40
        until = loop.time() + seconds
        while pending := [uuid for uuid in uuids if self.check.states.get(uuid) not in ENDED]:
            if loop.time() > until:
                shown = [(uuid, uuids[uuid], self.check.states.get(uuid)) for uuid in pending[:5]]
                text = f"{len(pending)} acknowledged tasks have not ended after {seconds:g} s: {shown}"
                self.check.report("I1", text)
            await asyncio.sleep(0.5)

    async def await_schedule(self) -> None:
        """After a loss of data the workers declare it again."""
        loop = self.world.loop
        until = loop.time() + 4 * self.world.lease + 40
        while self.check.schedule("tick") is None:
            if loop.time() > until:
                self.check.report("I5", "no worker has declared the schedule tick again")
            await asyncio.sleep(0.5)

    def check_ends(self) -> None:
        for uuid, state in self.check.states.items():
            source = self.check.sources[uuid]
            if state == "succeeded" and source in self.bad_sources:
                self.check.report("I11", f"{source} {uuid} has succeeded")
            if state == "failed" and source not in _FAILING and source not in self.bad_sources:
                self.check.report("I1", f"{source} {uuid} has failed, and was not made to")
            if state == "cancelled" and source not in _EXPIRING and not self._may_be_cancelled(uuid):
                self.check.report("I1", f"{source} {uuid} was cancelled by nobody")
        self._check_children()
        self._check_windows()
        for difference in self.world.losses.differences():
            self.check.report("loss", difference)

    def _may_be_cancelled(self, uuid: str) -> bool:
        cancelled = self.world.cancelled
        flows = self.world.flows
        return uuid in cancelled or (flows is not None and flows.may_be_cancelled(uuid, cancelled))

    def _check_children(self) -> None:
        sources = self.check.sources
        counts = Counter((sources[uuid], state) for uuid, state in self.check.states.items())
        parents = counts["parent", "succeeded"]
        children = sum(number for (source, _), number in counts.items() if source == "child")
        if parents != children:
            self.check.report("I4", f"{parents} parents have succeeded, and there are {children} children")

    def _check_windows(self) -> None:
        schedule = self.check.schedule("tick")
        if schedule is None or schedule.next_at is None:
            self.check.report("I5", "the schedule tick is not in the store")
            return
        expected = round((schedule.next_at - self.check.first_window["tick"]) / (INTERVAL * 1000))
        fired = len(self.check.windows["tick"])
        if not expected == fired == schedule.runs:
            self.check.report("I5", f"tick: {expected} windows, {fired} fired, {schedule.runs} runs")


class _Added(NamedTuple):
    source: str
    at: float  # when the add was acknowledged


@dataclass(eq=False)
class QuietPhase:
    """Only slow replies and dropped hints: long tasks run once, short ones start and end soon."""

    nodes: Sequence[Node]
    ends: EndChecks
    run_log: RunLog
    store_clock: SimClock
    chance: Random

    def __post_init__(self) -> None:
        self._added: dict[str, _Added] = {}
        self._loop = self.ends.world.loop
        self._report = self.ends.check.report

    async def run(self) -> None:
        first = self.nodes[0]
        self._loop.spawn(first.name, first.pause_schedule("tick"))  # its windows would replace the poll
        sources: list[tuple[str, Any]] = [("long", 0), ("long", 1)]
        sources += [("laned", "a")] * LANE_CAP + [("limited", 0)] * CAPS["limited"]
        for number, (source, argument) in enumerate([*sources, *[("short", number) for number in range(12)]]):
            node = self.nodes[number % len(self.nodes)]
            self._loop.spawn(node.name, self._add(node, source, argument))
            if source == "short":
                await asyncio.sleep(self.chance.uniform(0.2, 1.5))
        await asyncio.sleep(1.0)
        await self.ends.await_ends({uuid: added.source for uuid, added in self._added.items()})
        for uuid, added in self._added.items():
            self._check(uuid, added)

    async def _add(self, node: Node, source: str, argument: Any) -> None:
        uuid = await node.add(source, argument)
        if uuid is None:
            self._report("quiet", f"an add of {source} failed without a fault")
        else:
            self._added[uuid] = _Added(source, self._loop.time())

    def _check(self, uuid: str, added: _Added) -> None:
        starts = self.run_log.starts[uuid]
        if len(starts) != 1:
            self._report("quiet", f"{added.source} {uuid} ran {len(starts)} times without a fault")
            return
        if starts[0].at - added.at > POLL + 1:
            self._report("quiet", f"{added.source} {uuid} started {starts[0].at - added.at:.1f} s after its add")
        settled_after = self.ends.check.ended_at[uuid] - self.store_clock.at(self.run_log.ended_at[uuid])
        if settled_after > 500:
            self._report("quiet", f"{added.source} {uuid} was settled {settled_after:.0f} ms after its run")
