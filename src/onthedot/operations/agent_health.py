"""Problems of agents, each with a remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from onthedot.model.agent_names import agent_of
from onthedot.operations.health import Check
from onthedot.operations.humanize import duration_text
from onthedot.operations.workers import WorkerInfo

_HOUR = timedelta(hours=1)


def check_agent_keep(workers: Sequence[WorkerInfo], ended: float) -> Iterator[Check]:
    """Agents whose tasks are deleted before their `keep`: a copy of such an event would run again.

    ended: tasks of all sources in the last hour
    """
    bounds = [each.max_kept for each in workers if each.max_kept is not None]
    if not bounds or not ended:
        return
    lasts = _HOUR * (min(bounds) / ended)
    keeps = {name: timedelta(milliseconds=ms) for each in workers for name, ms in each.agent_keep.items()}
    for name, keep in sorted(keeps.items()):
        if keep <= lasts:
            continue
        kept = duration_text(keep.total_seconds())
        possible = duration_text(lasts.total_seconds())
        text = (
            f"agent {agent_of(name)} keeps its tasks for {kept}, but max_kept={min(bounds):,} lasts for {possible}: "
            f"{ended:,.0f} tasks ended in the last hour"
        )
        remedy = (
            "a copy of an event that comes later is handled again: raise App(max_kept=…), or lower `keep` of other "
            "tasks, or that of the agent if the bus keeps events for a shorter time"
        )
        yield Check(False, "agents", text, remedy)
