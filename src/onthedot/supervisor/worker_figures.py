"""The figures of a worker process: what its meter has counted, and its state now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from onthedot.events.bus import TopicPartition
from onthedot.events.subscription import AgentSubscription
from onthedot.model.figures import Figures
from onthedot.observability.meter import Meter
from onthedot.observability.process_memory import resident_bytes
from onthedot.observability.worker_metrics import (
    AGENT_IN_FLIGHT,
    AGENT_LAG,
    BUSY,
    LOOP_LAG,
    SLOTS,
    UP,
    WORKER_RSS,
)
from onthedot.runtime.settings import code_release
from onthedot.supervisor.process_figures import add_process_figures

if TYPE_CHECKING:
    from onthedot.runtime.runtime import Runtime

_TICK = 0.1  # seconds between two looks at the delay of the event loop
_LAG_TICKS = 100  # between two questions for the lag of agents
_LAG_TIMEOUT = 5.0  # seconds
_ALL = "all"  # the pool of all executors


class WorkerFigures:
    """Attaches a meter to a runtime whose worker has not been started."""

    def __init__(self, runtime: Runtime, meter: Meter) -> None:
        self._runtime = runtime
        self._meter = meter
        self._release = code_release()
        self._delay = 0.0  # seconds: the longest since the last read
        self._lag: dict[tuple[str, str, str], int] = {}  # by agent, topic and partition
        runtime.use(replace(runtime.config, meter=meter))

    async def watch(self) -> None:
        """Measures the delay of the event loop, and every ten seconds how far agents are behind."""
        ticks = 0
        while True:
            before = time.monotonic()
            await asyncio.sleep(_TICK)
            self._delay = max(self._delay, time.monotonic() - before - _TICK)
            if ticks % _LAG_TICKS == 0:
                await self._read_lag()
            ticks += 1

    async def _read_lag(self) -> None:
        found: dict[tuple[str, str, str], int] = {}
        for each in self._subscriptions():
            agent = self._meter.agent_names.of(each.source.agent.id)
            for partition, count in (await self._lag_of(each)).items():
                found[agent, partition.topic, str(partition.partition)] = count
        self._lag = found

    async def _lag_of(self, subscription: AgentSubscription) -> Mapping[TopicPartition, int]:
        try:
            async with asyncio.timeout(_LAG_TIMEOUT):
                return await subscription.lag()
        except Exception as error:  # noqa: BLE001 - counted; its lag is not known now
            self._meter.bus_failed(f"reading the lag of {subscription.name}", error)
            return {}

    def _subscriptions(self) -> list[AgentSubscription]:
        return [each for each in self._runtime.components.all if isinstance(each, AgentSubscription)]

    def read(self) -> Figures:
        """On the event loop of the worker."""
        figures = self._meter.figures()
        figures.add(UP, 1, self._release)
        worker = self._runtime.worker
        if worker is not None:
            for pool, usage in worker.slot_usage.items():
                figures.add(SLOTS, usage.total, pool or _ALL)
                figures.add(BUSY, usage.busy, pool or _ALL)
        figures.add(LOOP_LAG, max(0.0, self._delay))
        self._delay = 0.0
        for subscription in self._subscriptions():
            agent = self._meter.agent_names.of(subscription.source.agent.id)
            figures.add(AGENT_IN_FLIGHT, subscription.in_flight, agent)
        for labels, count in self._lag.items():
            figures.add(AGENT_LAG, count, *labels)
        resident = resident_bytes()
        if resident is not None:
            figures.add(WORKER_RSS, resident)
        add_process_figures(figures)
        return figures
