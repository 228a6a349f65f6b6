"""The last hour of each source, from the figures that workers write every ten seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from onthedot.model.source_figures import SourceFigures
from onthedot.operations.figure_records import by_time, read_all
from onthedot.stores.contract import Store

_HOUR = 3_600_000  # ms
_SPAN = 300_000  # ms of one number of `done`
_SPANS = _HOUR // _SPAN


@dataclass(frozen=True, slots=True)
class SourceHour:
    """The work of all workers with a source.

    done: ended without a failure, per five minutes, the oldest first
    latency_p95: from due time to start, in ms; None: nothing started
    """

    done: tuple[int, ...]
    failed: int
    retried: int
    latency_p95: float | None


async def read_source_hours(store: Store, now: int) -> Mapping[str, SourceHour]:
    """Return the last hour by source. now: ms; the last five minutes go on."""
    begin = (now // _SPAN - _SPANS + 1) * _SPAN
    totals: defaultdict[str, SourceFigures] = defaultdict(SourceFigures)
    done: defaultdict[str, list[int]] = defaultdict(lambda: [0] * _SPANS)
    for at, record in by_time(await read_all(store, "minutes", begin, now)).items():
        for name, figures in record.sources.items():
            totals[name].add(figures)
            done[name][(at - begin) // _SPAN] += figures.succeeded
    return {
        name: SourceHour(tuple(done[name]), total.failed, total.retried, total.latency.percentile(95))
        for name, total in totals.items()
    }
