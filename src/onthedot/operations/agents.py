"""Agents as an operator sees them: what is in flight, how far their groups are behind, what they did."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from onthedot.model.agent_names import agent_of
from onthedot.operations.outbox import GroupInfo
from onthedot.operations.series import SeriesData
from onthedot.operations.sources import SourceInfo
from onthedot.operations.workers import WorkerInfo

_NAMES = ("done", "failed", "retried")
MAX_AGENTS = 100
"""More are not listed: each costs a read of its figures."""


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """An agent: the tasks of its source, its group, and what it did in the last hour.

    lag: events that its group has not committed; None: the store is not the bus, and only the bus knows it
    done: ended without a failure, per minute of the last hour
    """

    id: str
    source: SourceInfo
    workers: tuple[WorkerInfo, ...] = ()
    lag: int | None = None
    members: int | None = None
    done: tuple[int, ...] = ()
    failed: int = 0
    retried: int = 0

    @property
    def in_flight(self) -> int:
        """Events that were received and have not ended."""
        source = self.source
        return source.ready + source.parked + source.scheduled + source.running + source.waiting


async def agent_infos(
    sources: Sequence[SourceInfo],
    workers: Sequence[WorkerInfo],
    groups: Sequence[GroupInfo],
    read_series: Callable[[Sequence[str], str], Awaitable[SeriesData]],
) -> list[AgentInfo]:
    """By name. read_series: names and a source → its figures of the last hour."""
    infos: list[AgentInfo] = []
    for source in sorted(sources, key=lambda each: each.name):
        agent = agent_of(source.name)
        if agent is None or len(infos) == MAX_AGENTS:
            continue
        group = next((each for each in groups if each.group.endswith(f".{agent}")), None)
        series = (await read_series(_NAMES, source.name)).series
        infos.append(
            AgentInfo(
                id=agent,
                source=source,
                workers=tuple(each for each in workers if source.name in each.sources),
                lag=None if group is None else group.lag,
                members=None if group is None else group.members,
                done=tuple(int(value or 0) for value in series["done"]),
                failed=_sum(series["failed"]),
                retried=_sum(series["retried"]),
            )
        )
    return infos


def _sum(values: Sequence[float | None]) -> int:
    return int(sum(value for value in values if value is not None))
