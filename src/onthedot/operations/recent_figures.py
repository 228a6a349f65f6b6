"""Figures of the last two hours, read from the series for attention items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from onthedot.clock.durations import MINUTE
from onthedot.model.figures import Names
from onthedot.model.source_figures import Depth, FigureRecord
from onthedot.operations.series import read_records
from onthedot.stores.contract import Store

_AGAIN = 15_000  # ms for which what was read is used again: workers write records of minutes
_SPAN = 10 * MINUTE
_HOUR = 60 * MINUTE
_MIN_GROWTH = 5  # of the failure share, against the hour before
_MIN_FAILED = 10  # in the last hour
_MIN_BEFORE = 20  # runs that ended in the hour before: fewer have no share worth comparing
_SAMPLE = 45_000  # ms after the end of a minute: its depth has been sampled by then
_MAX_GAP = 2 * MINUTE  # between two samples
_MAX_AGE = 4 * MINUTE  # of the last sample


@dataclass(frozen=True, slots=True)
class FailureShare:
    """A source that fails more often than before. share: of the runs that ended in the last hour; since: ms."""

    source: str
    failed: int
    share: float
    share_before: float
    since: int


class RecentFigures:
    """Reads the series, and reads it again only after some seconds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._shares: list[FailureShare] = []
        self._shares_at = -inf  # ms
        self._depths: Mapping[int, Mapping[str, Depth]] = {}
        self._depths_at = -inf

    async def grown_failure_shares(self, now: float) -> list[FailureShare]:
        """Return the sources that fail five times as often as in the hour before. now: ms."""
        if not 0 <= now - self._shares_at < _AGAIN:
            end = int(now)
            cut = -(-(end - _HOUR) // _SPAN) * _SPAN
            records = await read_records(self._store, _SPAN // 1000, range(cut - _HOUR, end, _SPAN), end)
            self._shares = _grown_shares(records, cut)
            self._shares_at = now
        return self._shares

    async def at_limit_since(self, source: str, cap: int, pending: int, now: float) -> int | None:
        """Return since when each sample shows a source with so many running and pending tasks, in ms.

        None: the last one does not, or there is none. Samples are taken once per minute while a worker lives.
        """
        if not 0 <= now - self._depths_at < _AGAIN:
            end = int(now)
            begin = (end - _HOUR) // MINUTE * MINUTE
            records = await read_records(self._store, MINUTE // 1000, range(begin, end, MINUTE), end)
            self._depths = {at: record.depth for at, record in records.items() if record.depth}
            self._depths_at = now
        since: int | None = None
        last = int(now) - _MAX_AGE + _MAX_GAP
        for at, depth in sorted(self._depths.items(), reverse=True):
            found = depth.get(source, Depth())
            if last - at > _MAX_GAP or found.running < cap or found.ready < pending:
                break
            since = at
            last = at
        return None if since is None else since + MINUTE + _SAMPLE


def _grown_shares(records: Mapping[int, FigureRecord], cut: int) -> list[FailureShare]:
    """cut: when the last hour begins."""
    failed, ended = _count(record for at, record in records.items() if at >= cut)
    failed_before, ended_before = _count(record for at, record in records.items() if at < cut)
    found: list[FailureShare] = []
    for source, number in sorted(failed.items()):
        if source == Names.OTHERS or number < _MIN_FAILED or ended_before[source] < _MIN_BEFORE:
            continue
        share = number / ended[source]
        share_before = failed_before[source] / ended_before[source]
        limit = _MIN_GROWTH * max(share_before, 1 / ended_before[source])  # none failed: as if one had
        if share >= limit:
            high = [at for at, record in records.items() if at >= cut and _share(record, source) >= limit]
            since = min(high, default=cut)
            found.append(FailureShare(source, number, share, share_before, since))
    return found


def _count(records: Iterable[FigureRecord]) -> tuple[Counter[str], Counter[str]]:
    """Failed tasks, and tasks that failed or succeeded, by source."""
    failed: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for record in records:
        for source, figures in record.sources.items():
            failed[source] += figures.failed
            ended[source] += figures.failed + figures.succeeded
    return failed, ended


def _share(record: FigureRecord, source: str) -> float:
    failed, ended = _count([record])
    return failed[source] / max(1, ended[source])
