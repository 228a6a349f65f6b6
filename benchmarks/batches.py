"""Batches: 20 at once, of 50 items each, from a generator that takes 100 ms per part.

The targets are times for users, not ratios: the first part within 2 s, all items within 5 s, parts queued for less than
500 ms, each as the 95th percentile. More than 99 % of the batches have all their items. With 5 % of the calls refused
(HTTP 429), more than 95 % of the parts that were refused succeed after a retry.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.redis import server
from benchmarks.report import Figure
from onthedot import App, Batch, BatchPolicy, Dedup, SizeTable
from onthedot.model.flow_names import MemberUuids
from onthedot.stores.contract import Record

BATCHES = 20
ITEMS = 50
GENERATOR = 0.1  # seconds
REFUSED = 0.05  # of the calls


class TooManyRequests(Exception):
    """As a model's server refuses a call: HTTP 429."""


@dataclass
class Times:
    first: list[float] = field(default_factory=list)  # seconds from the call
    all: list[float] = field(default_factory=list)
    queued: list[float] = field(default_factory=list)  # ms from the add of a part to its start
    complete: int = 0  # batches with all their items
    refused: int = 0  # parts that were refused at least once
    recovered: int = 0  # of these, how many succeeded


async def measure(url: str, refused: float) -> Times:
    app = App("bench", store=url, concurrency=100)
    rng = random.Random()
    policy = BatchPolicy(split=SizeTable({"name": 20}), dedup=Dedup(threshold={"name": 0.97}))

    @app.task(batch=policy, max_retries=3, backoff=0.2)
    async def names(type: str, count: int) -> list[str]:  # noqa: A002, ARG001 - as the parameter is called
        await asyncio.sleep(GENERATOR)
        if rng.random() < refused:
            raise TooManyRequests("429")
        return [f"{rng.getrandbits(128):032x}" for _ in range(count)]

    times = Times()

    async def one() -> Batch[str]:
        began = time.perf_counter()
        batch = await app.batch(names, count=ITEMS, type="name")
        await batch.first()
        times.first.append(time.perf_counter() - began)
        result = await batch.all()
        times.all.append(time.perf_counter() - began)
        times.complete += len(result.items) == ITEMS
        return batch

    async with app.running():
        batches = await asyncio.gather(*(one() for _ in range(BATCHES)))
        for batch in batches:
            uuids = [MemberUuids(batch.id).of(index) for index in range(5)]
            _add_parts(times, [record for record in await app.runtime.store.get(uuids) if record is not None])
    return times


def _add_parts(times: Times, parts: list[Record]) -> None:
    for part in parts:
        if part.history.retries:
            times.refused += 1
            times.recovered += part.state == "succeeded"
        else:
            assert part.history.started is not None
            times.queued.append(part.history.started - part.added)


def _p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))]


def _figures(run: Callable[[float], Times]) -> list[Figure]:
    plain = run(0)
    faulty = run(REFUSED)
    while not faulty.refused:  # 60 parts: now and then none is refused
        faulty = run(REFUSED)
    return [
        Figure(_p95(plain.first), 1, "s", "first p95", 2, least=False),
        Figure(_p95(plain.all), 1, "s", "all p95", 5, least=False),
        Figure(_p95(plain.queued), 1, "ms", "queued p95", 500, least=False),
        Figure(100 * plain.complete / BATCHES, 1, "%", "complete", 99, least=True),
        Figure(100 * faulty.recovered / faulty.refused, 1, "%", "recovered after 429", 95, least=True),
        Figure(100 * faulty.complete / BATCHES, 1, "%", "complete with 429", 99, least=True),
    ]


def sqlite_batches(scale: float) -> list[Figure]:  # noqa: ARG001 - 20 at once is the case
    def run(refused: float) -> Times:
        with tempfile.TemporaryDirectory() as folder:
            return asyncio.run(measure(f"sqlite:///{folder}/bench.db", refused))

    return _figures(run)


def redis_batches(scale: float) -> list[Figure]:  # noqa: ARG001
    def run(refused: float) -> Times:
        with server() as url:
            return asyncio.run(measure(url, refused))

    return _figures(run)


MEASURES = [sqlite_batches, redis_batches]
