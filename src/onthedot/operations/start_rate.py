"""How fast tasks of a source or lane start, estimated from those that have run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from onthedot.stores.contract import Record, Store

_SAMPLE = 400  # runs; with more slots than that, the estimate is too low
_MAX_READS = 3  # of up to 20,000 records each, where a read is a scan; older runs are not seen
_MIN_RUNS = 5  # fewer ended runs give no estimate
_DURATION = 1.5  # ratio of a run's duration to the age of running ones: 2 if all take equally long, 1 if they vary much


async def sample(store: Store, where: Mapping[str, str], limit: int) -> AsyncIterator[Record]:
    """Yield the first records that a bounded number of reads finds, in the order of their state."""
    cursor: str | None = None
    for _ in range(_MAX_READS):
        page = await store.find(where, cursor, min(limit, _SAMPLE))
        for record in page.rows:
            yield record
        limit -= len(page.rows)
        cursor = page.after
        if cursor is None or limit <= 0:
            return


async def start_rate(store: Store, source: str, lane: str | None, now: float) -> float | None:
    """Return starts per ms of a source, or of its lane; None if none of its tasks has ended or runs."""
    where = {"source": source} if lane is None else {"lane": lane}
    tally = await store.tally()
    runs: list[tuple[int, int]] = []
    if tally.get((source, "succeeded")):
        runs = await _runs(store, {**where, "state": "succeeded"})
    if len(runs) < _MIN_RUNS and tally.get((source, "failed")):
        runs += await _runs(store, {**where, "state": "failed"})
    if len(runs) >= _MIN_RUNS:
        return runs_per_ms(runs)
    running = [record.history.started or now async for record in sample(store, {**where, "state": "running"}, _SAMPLE)]
    if not running:
        return None
    age = sum(now - started for started in running) / len(running)
    return len(running) / max(1.0, _DURATION * age)


async def _runs(store: Store, where: Mapping[str, str]) -> list[tuple[int, int]]:
    """Return when each run began and ended; the records may be large, and are not kept."""
    return [
        (record.history.started, record.history.ended)
        async for record in sample(store, where, _SAMPLE)
        if record.history.started is not None and record.history.ended is not None
    ]


def runs_per_ms(runs: Sequence[tuple[float, float]]) -> float:
    """Runs per ms over the last period of work, from when each began and ended.

    >>> runs_per_ms([(at, at + 1000) for at in range(0, 100_000, 1000)])  # one after the other
    0.001005...
    >>> runs_per_ms([(day + at, day + at + 1000) for day in (0, 86_400_000) for at in range(0, 50_000, 1000)])
    0.00101...
    """
    latest = sorted(runs, key=lambda run: run[1], reverse=True)
    since, last = latest[0]
    period: list[tuple[float, float]] = []
    for began, ended in latest:
        if len(period) >= _MIN_RUNS and since - ended > last - since:
            break  # a gap longer than all the work after it: an earlier period
        period.append((began, ended))
        since = min(since, began)
    # The time between the ends covers one run too few; half a run corrects that, whether they end together or in turn.
    half = sum(ended - began for began, ended in period) / len(period) / 2
    return len(period) / max(1.0, last - period[-1][1] + half)
