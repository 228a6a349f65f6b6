"""How long runs of a source take, from those that have ended lately."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from onthedot.stores.contract import Record, State, Store

_SAMPLE = 1000  # ended tasks that are read for all sources together
_RARE_SAMPLE = 100  # and for a source that is not among them
_MAX_RARE = 10  # sources that are read separately


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Seconds: half of the runs took at most p50, 95 % of them at most p95."""

    p50: float
    p95: float


def run_times(durations: Sequence[int]) -> RunTimes | None:
    """Of durations in ms; None if there are none.

    >>> run_times([40, 10, 20, 30])
    RunTimes(p50=0.02, p95=0.04)
    """
    if not durations:
        return None
    ordered = sorted(durations)
    p50, p95 = (ordered[ceil(len(ordered) * share) - 1] / 1000 for share in (0.5, 0.95))
    return RunTimes(p50, p95)


async def recent_durations(store: Store, tally: Mapping[tuple[str, State], int]) -> dict[str, list[int]]:
    """Return durations in ms of the newest runs that succeeded, by source; of those that failed, if none succeeded.

    A bounded number of records is read.
    """
    found: defaultdict[str, list[int]] = defaultdict(list)
    _collect(found, (await store.find({"state": "succeeded"}, None, _SAMPLE)).rows)
    rare: dict[str, State] = {source: state for (source, state), count in tally.items() if count and state == "failed"}
    rare |= {source: state for (source, state), count in tally.items() if count and state == "succeeded"}
    for source in sorted(rare.keys() - found.keys())[:_MAX_RARE]:
        page = await store.find({"state": rare[source], "source": source}, None, _RARE_SAMPLE)
        _collect(found, page.rows)
    return dict(found)


def _collect(found: defaultdict[str, list[int]], records: Iterable[Record]) -> None:
    for record in records:
        history = record.history
        if history.started is not None and history.ended is not None:
            found[record.source].append(history.ended - history.started)
