"""A claim beside a million pending tasks, with and without 10,000 tasks that wait: on SQLite, Redis and Postgres."""

from __future__ import annotations

import asyncio
import statistics

from benchmarks.flow_stores import postgres_stores, redis_stores, sqlite_stores
from benchmarks.measures import Pending
from benchmarks.report import Figure

_STORES = {"SQLite": sqlite_stores, "Redis": redis_stores, "Postgres": postgres_stores}


async def _turns(few_url: str, many_url: str, pending: int, waiting: int) -> tuple[float, float]:
    """Median µs of a turn without and with waiting tasks, measured alternately."""
    both = (Pending(few_url), Pending(many_url))
    for each, number in zip(both, (0, waiting), strict=True):
        await each.fill(pending)
        await each.fill_waiting(number)
    times: list[list[float]] = [[], []]
    for number in range(1, 101):
        for some, each in zip(times, both, strict=True):
            _, turn = await each.round(number)
            some.append(turn)
    for each in both:
        await each.close()
    return statistics.median(times[0]), statistics.median(times[1])


def claim_beside_waiting(scale: float) -> list[Figure]:
    figures: list[Figure] = []
    for name, stores in _STORES.items():
        with stores() as new_store, stores() as other:  # two servers of their own, as Redis is emptied
            without, with_waiting = asyncio.run(
                _turns(new_store(), other(), int(1_000_000 * scale), max(1000, int(10_000 * scale)))
            )
        against = f"{name}: turn with 10,000 waiting beside none, 1M pending"
        figures.append(Figure(with_waiting, without, "µs", against, 1.2, least=False))
    return figures


MEASURES = [claim_beside_waiting]
