"""Figures of workers: written within ten seconds, added up by any worker, counted once."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from onthedot.clock.durations import MINUTE
from onthedot.clock.manual import ManualClock
from onthedot.codec.body import NO_HEADERS, Headers
from onthedot.engine.figure_sums import FigureSums
from onthedot.engine.figure_writer import FigureWriter
from onthedot.errors import StoreUnavailable
from onthedot.model.source_figures import FLEET, FigureRecord, SourceFigures, decode_record, encode_record, sum_sources
from onthedot.observability.events import Observer
from onthedot.observability.meter import Meter
from onthedot.operations.figure_records import by_time, read_all, read_totals
from onthedot.stores.contract import Completed, Lease, NewTask, Policy, Record, SeriesEntry
from onthedot.stores.memory import MemoryStore

END = 2**52


class Started:
    def __init__(self, source: str, started: float, headers: Headers = NO_HEADERS) -> None:
        self.record = Record("u", source, b"", Policy(), None, None, int(started) - 4, 1, 0, "running")
        self.started = started
        self.headers = headers


class Reports(Observer):
    def __init__(self) -> None:
        self.events: list[str] = []

    def store_failed(self, operation: str, error: BaseException) -> None:
        self.events.append(f"{operation}: {error}")

    def store_recovered(self, operation: str) -> None:
        self.events.append(f"{operation}: recovered")


class Node:
    """A worker that only counts and writes."""

    def __init__(self, store: MemoryStore, clock: ManualClock, name: str = "w1", seed: int = 1) -> None:
        self.clock = clock
        self.store = store
        self.name = name
        self.meter = Meter()
        self.reports = Reports()
        self.writer = FigureWriter(store, self.meter, clock, Random(seed), self.reports, lambda: self.name)

    def run(self, number: int = 1, source: str = "email") -> None:
        runs = [Started(source, self.clock.now()) for _ in range(number)]
        self.meter.tasks_started(runs)
        self.meter.tasks_settled(
            [(Completed(Lease("u", 1, "w")), run) for run in runs], ["ok"] * number, self.clock.now()
        )


class Outage(MemoryStore):
    is_away = False

    async def write_series(self, *args: Any, **options: Any) -> bool:
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().write_series(*args, **options)


@pytest.fixture
def clock() -> ManualClock:
    clock = ManualClock()
    clock.advance(MINUTE - clock.now() % MINUTE)
    return clock


@pytest.fixture
def store(clock: ManualClock) -> Outage:
    return Outage(clock)


async def succeeded(store: MemoryStore) -> int:
    records = by_time(await store.read_series("minutes", 0, END, 1000)).values()
    return sum_sources(records).succeeded


async def advance(clock: ManualClock, seconds: float, *nodes: Node) -> None:
    for _ in range(int(seconds * 2)):
        clock.advance(500)
        for node in nodes:
            await node.writer.write_if_due()


async def test_figures_are_written_within_ten_seconds_and_only_if_something_ran(
    store: Outage, clock: ManualClock
) -> None:
    node = Node(store, clock)
    await advance(clock, 20, node)
    assert await read_all(store, "minutes", 0, END) == []
    node.run(3)
    await advance(clock, 10, node)
    (entry,) = await read_all(store, "minutes", 0, END)
    assert entry.writer == "w1"
    assert decode_record(entry.data).sources["email"].succeeded == 3
    await advance(clock, 12, node)
    assert await read_all(store, "minutes", 0, END) == [entry]


async def test_record_of_a_minute_is_cumulative(store: Outage, clock: ManualClock) -> None:
    node = Node(store, clock)
    for _ in range(4):
        node.run(2)
        await advance(clock, 12, node)
    (entry,) = await read_all(store, "minutes", 0, END)
    assert decode_record(entry.data).sources["email"].succeeded == 8


async def test_figures_that_cannot_be_written_come_later(store: Outage, clock: ManualClock) -> None:
    node = Node(store, clock)
    node.run(1)
    await advance(clock, 12, node)
    store.is_away = True
    for _ in range(12):
        node.run(1)
        await advance(clock, 10, node)
    assert await succeeded(store) == 1
    store.is_away = False
    await advance(clock, 13, node)
    assert await succeeded(store) == 13
    assert node.reports.events[0] == "writing figures: away"
    assert "writing figures: recovered" in node.reports.events


async def test_new_session_writes_a_record_of_its_own(store: Outage, clock: ManualClock) -> None:
    node = Node(store, clock)
    node.run(1)
    await advance(clock, 12, node)
    node.name = "w2"
    node.run(2)
    await advance(clock, 12, node)
    assert [entry.writer for entry in await read_all(store, "minutes", 0, END)] == ["w1", "w2"]
    assert await succeeded(store) == 3


async def test_records_of_a_minute_become_one_with_the_depth(store: Outage, clock: ManualClock) -> None:
    nodes = [Node(store, clock, f"w{number}", number) for number in range(3)]
    await store.add([NewTask("a", "email", b"", after=10**6)])
    start = int(clock.now())
    for _ in range(6):
        for node in nodes:
            node.run(5)
        await advance(clock, 10, *nodes)
    await advance(clock, 50, *nodes)
    (entry,) = await store.read_series("minutes", start, start, 10)
    record = decode_record(entry.data)
    assert entry.writer == FLEET
    assert record.sources["email"].latency.number == record.sources["email"].succeeded > 0
    assert record.depth["email"].scheduled == 1
    await advance(clock, 120, *nodes)
    assert await succeeded(store) == 90
    assert (await read_totals(store, int(clock.now()))).sources["email"].succeeded == 90


async def test_minute_without_a_run_has_a_record_while_a_worker_lives(store: Outage, clock: ManualClock) -> None:
    node = Node(store, clock)
    await advance(clock, 240, node)
    entries = await read_all(store, "minutes", 0, END)
    assert len(entries) >= 3
    assert all(entry.writer == FLEET for entry in entries)


async def test_totals_never_decrease_and_include_what_is_not_added_up(store: Outage, clock: ManualClock) -> None:
    nodes = [Node(store, clock, f"w{number}", number) for number in range(2)]
    before = 0
    for ran in range(1, 91):
        nodes[ran % 2].run(1)
        await advance(clock, 5, *nodes)
        totals = await read_totals(store, int(clock.now()))
        total = sum_sources([totals]).succeeded
        assert before <= total <= ran
        assert ran - total <= 6  # those of the last ten seconds
        before = total


async def test_late_write_of_a_record_that_is_in_the_sum_does_not_count(store: Outage, clock: ManualClock) -> None:
    at = int(clock.now())
    record = FigureRecord({"email": SourceFigures(1, 1)})
    row = SeriesEntry("minutes", at, "session-1", encode_record(record, 10**5))
    await store.write_series([row])
    clock.advance(3 * MINUTE)
    await FigureSums(store).update(int(clock.now()))
    await store.write_series([row])
    assert await succeeded(store) == 1
    late = SeriesEntry("minutes", at, "session-2", encode_record(record, 10**5))
    await store.write_series([late])
    assert await succeeded(store) == 2
    await FigureSums(store).update(int(clock.now()))
    assert await succeeded(store) == 2
    assert sum_sources([await read_totals(store, int(clock.now()))]).succeeded == 2


async def test_longer_spans_have_the_sums_of_shorter_ones(store: Outage, clock: ManualClock) -> None:
    node = Node(store, clock)
    clock.advance(60 * MINUTE - clock.now() % (60 * MINUTE))
    start = int(clock.now())
    for _ in range(62 * 6):
        node.run(1)
        await advance(clock, 10, node)
    await advance(clock, 120, node)
    tens = by_time(await read_all(store, "ten_minutes", start, END))
    hours = by_time(await read_all(store, "hours", start, END))
    assert list(hours) == [start]
    of_hour = [record for at, record in tens.items() if at < start + 60 * MINUTE]
    assert len(of_hour) == 6
    assert sum_sources(hours.values()).succeeded == sum_sources(of_hour).succeeded
    assert abs(sum_sources(hours.values()).succeeded - 360) <= 2  # a record begins up to ten seconds earlier


class Interleaved(MemoryStore):
    """Other workers run between two calls."""

    async def read_series(self, *args: Any, **options: Any) -> Any:
        found = await super().read_series(*args, **options)
        await asyncio.sleep(0)
        return found


@pytest.mark.parametrize("seed", range(40))
async def test_workers_that_race_count_nothing_twice(seed: int, clock: ManualClock) -> None:
    store = Interleaved(clock)
    random = Random(seed)
    record = FigureRecord({"email": SourceFigures(1, 1)})
    at = int(clock.now())
    sums = [FigureSums(store) for _ in range(8)]
    written = 0
    for _ in range(25):
        for number in range(random.randrange(4)):
            minute = at - MINUTE * random.randrange(3)
            await store.write_series(
                [SeriesEntry("minutes", minute, f"w{written}-{number}", encode_record(record, 9999))]
            )
            written += 1
        await asyncio.gather(*(each.update(at + 2 * MINUTE) for each in random.sample(sums, 8)))
    totals = await read_totals(store, at)
    assert await succeeded(store) == written
    assert sum_sources([totals]).succeeded == written
