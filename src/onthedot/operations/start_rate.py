"""How fast tasks get their turn, as seen from those that had theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from onthedot.stores.contract import Record, Store

_SAMPLE = 400  # runs; more slots than that, and the pace seems slower than it is
_PAGES = 3  # looks at the store, 20,000 records each: behind more than these, only running ones are seen
_FEW = 5  # runs that say little
_AGE = 1.5  # a run takes so many times what those that run have taken so far: 2 if all take alike, 1 if they vary much


async def sample(store: Store, where: Mapping[str, str], most: int) -> AsyncIterator[Record]:
    """The newest ones, as far as a bounded look goes."""
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await store.find(where, cursor, min(most, _SAMPLE))
        for record in page.rows:
            yield record
        most -= len(page.rows)
        cursor = page.after
        if cursor is None or most <= 0:
            return


async def start_rate(store: Store, source: str, lane: str | None, now: float) -> float | None:
    """Turns a millisecond of a source, or of a lane that it goes by; None: nothing of it has ended yet, or runs."""
    where = {"source": source} if lane is None else {"lane": lane}
    tally, runs = await store.tally(), list[tuple[int, int]]()
    if tally.get((source, "succeeded")):
        runs = await _runs(store, {**where, "state": "succeeded"})
    if len(runs) < _FEW and tally.get((source, "failed")):
        runs += await _runs(store, {**where, "state": "failed"})
    if len(runs) >= _FEW:
        return speed(runs)
    running = [record.history.started or now async for record in sample(store, {**where, "state": "running"}, _SAMPLE)]
    if not running:
        return None
    age = sum(now - started for started in running) / len(running)
    return len(running) / max(1.0, _AGE * age)


async def _runs(store: Store, where: Mapping[str, str]) -> list[tuple[int, int]]:
    """When each began and ended; the records may be large, and are not kept."""
    return [
        (record.history.started, record.history.ended)
        async for record in sample(store, where, _SAMPLE)
        if record.history.started is not None and record.history.ended is not None
    ]


def speed(runs: Sequence[tuple[float, float]]) -> float:
    """Runs a millisecond over the last stretch of work, from when each began and ended.

    >>> speed([(at, at + 1000) for at in range(0, 100_000, 1000)])  # one after the other
    0.001005...
    >>> speed([(day + at, day + at + 1000) for day in (0, 86_400_000) for at in range(0, 50_000, 1000)])
    0.00101...
    """
    latest = sorted(runs, key=lambda run: run[1], reverse=True)
    last, since = latest[0][1], latest[0][0]
    stretch: list[tuple[float, float]] = []
    for began, ended in latest:
        if len(stretch) >= _FEW and since - ended > last - since:
            break  # nothing ran for longer than all that came after it took: that was another stretch
        stretch.append((began, ended))
        since = min(since, began)
    # From end to end one run too few is seen; half of one makes up for it, whether they end together or in turn.
    half = sum(ended - began for began, ended in stretch) / len(stretch) / 2
    return len(stretch) / max(1.0, last - stretch[-1][1] + half)
