"""Events: publishing, settling with events, and turns of the outbox, by CPU time in one run: ``./dev bench events``.

Rows of other stores and of the bus join ``MEASURES``.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from zlib import crc32

from msgspec.structs import astuple

from benchmarks.report import Figure
from onthedot.clock.system import SystemClock
from onthedot.stores.capabilities import Outbox, SyncOutbox
from onthedot.stores.contract import (
    BUCKETS,
    ClaimRequest,
    Completed,
    Effects,
    Lease,
    NewEvent,
    NewTask,
    Outcome,
    RelayRequest,
    SlotPool,
    Store,
)
from onthedot.stores.schemes import connect

OUTCOMES = 100
TURN = 500  # events of a turn of the outbox, which sends nothing
MARKED = f"outbox: turns of {TURN} read and marked, beside SELECT and UPDATE"
LOGGED = f"outbox: turns of {TURN} appended to the log, beside SELECT and UPDATE"
HOLD = 10**12  # ms of a lease
TOPIC = "shop.order.events"
PAYLOAD = b'{"order":"' + b"x" * 190 + b'"}'
_COLUMNS = ", ".join(NewEvent.__struct_fields__)
_MARKS = ", ".join("?" for _ in NewEvent.__struct_fields__)
Cost = Callable[[], float]
"""Seconds of CPU so far, of all that work for the store."""


class EventRounds:
    """One session of a store, which works, publishes and relays."""

    def __init__(self, store: Store, cost: Cost = time.process_time) -> None:
        assert isinstance(store, Outbox)
        self._store = store
        self._outbox: Outbox = store
        self._cost = cost
        self._numbers = count(1)
        self._requests = count(1)
        self._sent: list[int] = []  # by the turn that follows

    @property
    def joining(self) -> SyncOutbox:
        assert isinstance(self._store, SyncOutbox)
        return self._store

    async def open(self) -> None:
        await self._store.open()
        await self._store.heartbeat("w", b"", HOLD)

    async def close(self) -> None:
        await self._store.close_session("w")
        await self._store.close()

    def event(self) -> NewEvent:
        number = next(self._numbers)
        key = f"order-{number % 997}"
        return NewEvent(
            f"0198f0a2-{number:027}", TOPIC, key, crc32(key.encode()) % BUCKETS, "Shop.Order.Placed", 1, "ShopOrder",
            key, f"command-{number}", None, 0, 1_700_000_000_000, PAYLOAD, None, b'{"ce_source":"/shop"}',
        )  # fmt: skip

    def task(self) -> NewTask:
        return NewTask(f"0198f0a3-{next(self._numbers):027}", "send", PAYLOAD)

    async def _cost_of(self, call: Awaitable[object]) -> float:
        """µs."""
        began = self._cost()
        await call
        return (self._cost() - began) * 1e6

    async def settle(self, *, with_events: bool) -> float:
        """The turn that settles 100 outcomes, and claims nothing."""
        await self._store.add([self.task() for _ in range(OUTCOMES)])
        request = ClaimRequest(next(self._requests), [SlotPool(OUTCOMES, {"send": OUTCOMES})])
        claim = (await self._store.turn("w", [], request)).claim
        assert claim is not None
        assert len(claim.tasks) == OUTCOMES
        effects = [Effects(events=(self.event(),)) if with_events else None for _ in claim.tasks]
        outcomes: list[Outcome] = [
            Completed(Lease(record.uuid, claim.fence, "w"), b"1", effects=each)
            for record, each in zip(claim.tasks, effects, strict=True)
        ]
        return await self._cost_of(self._store.turn("w", outcomes, None))

    async def publish(self, number: int) -> float:
        return await self._cost_of(self._outbox.publish([self.event() for _ in range(number)]))

    async def publish_all(self, number: int) -> None:
        """In calls of 500."""
        for first in range(0, number, TURN):
            await self._outbox.publish([self.event() for _ in range(first, min(first + TURN, number))])

    async def add(self, number: int) -> float:
        return await self._cost_of(self._store.add([self.task() for _ in range(number)]))

    async def fill(self, turns: int) -> None:
        """Enough for so many turns."""
        for _ in range(turns + 2):
            await self._outbox.publish([self.event() for _ in range(TURN)])
        self._sent = await self._read()

    async def relay(self, *, to_log: bool) -> float:
        """Marks what the last turn has read, and reads 500 more."""
        began = self._cost()
        self._sent = await self._read(to_log=to_log)
        took = (self._cost() - began) * 1e6
        assert len(self._sent) == TURN
        return took

    async def _read(self, *, to_log: bool = False) -> list[int]:
        result = await self._outbox.relay("w", self._sent, {}, RelayRequest(TURN), to_log=to_log)
        return [stored.seq for stored in result.events]


class BareOutbox:
    """The shortest outbox on SQLite: one table, an index on what is unsent, two statements and a commit per turn."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(f"CREATE TABLE outbox (seq INTEGER PRIMARY KEY, {_COLUMNS}, sent, UNIQUE (id))")
        self._db.execute("CREATE INDEX unsent ON outbox (seq) WHERE sent IS NULL")

    def fill(self, events: list[NewEvent]) -> None:
        self._db.execute("BEGIN")
        insert = f"INSERT INTO outbox ({_COLUMNS}) VALUES ({_MARKS})"
        self._db.executemany(insert, [astuple(event) for event in events])
        self._db.execute("COMMIT")

    async def turn(self) -> float:
        began = time.process_time()
        query = f"SELECT seq, {_COLUMNS} FROM outbox WHERE sent IS NULL ORDER BY seq LIMIT {TURN}"
        found = [(seq, NewEvent(*event)) for seq, *event in self._db.execute(query)]
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("UPDATE outbox SET sent = 1700000000000 WHERE seq = ?", [(seq,) for seq, _ in found])
        self._db.execute("COMMIT")
        assert len(found) == TURN
        return (time.process_time() - began) * 1e6

    def close(self) -> None:
        self._db.close()


async def alternate(rounds: int, *works: Callable[[], Awaitable[float]]) -> list[float]:
    """The median of each, in turn."""
    costs: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, some in zip(works, costs, strict=True):
            some.append(await work())
    return [statistics.median(some) for some in costs]


async def write_figures(rounds: EventRounds, scale: float) -> list[Figure]:
    times = max(3, int(40 * scale))
    plain, with_events = await alternate(
        times, lambda: rounds.settle(with_events=False), lambda: rounds.settle(with_events=True)
    )
    figures = [speed(OUTCOMES, with_events, plain, "settled: 100 with one event each beside without", 0.4)]
    for number in (1, 100):
        ours, other = await alternate(times, lambda n=number: rounds.publish(n), lambda n=number: rounds.add(n))
        figures.append(speed(number, ours, other, f"published: {number} per call beside as many tasks added", 0.7))
    return figures


async def _relay_turns(rounds: EventRounds, bare: BareOutbox, scale: float) -> list[Figure]:
    turns = max(3, int(20 * scale))
    await rounds.fill(turns * 2)
    bare.fill([rounds.event() for _ in range(TURN * turns)])
    marked, logged, other = await alternate(
        turns, lambda: rounds.relay(to_log=False), lambda: rounds.relay(to_log=True), bare.turn
    )
    return [
        speed(TURN, marked, other, MARKED, None),
        speed(TURN, logged, other, LOGGED, None),
    ]


def speed(number: int, ours: float, other: float, against: str, target: float | None) -> Figure:
    """Per second of CPU."""
    return Figure(number / ours * 1e6, number / other * 1e6, "/s", against, target, least=True)


def events_sqlite(scale: float) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="onthedot-bench-") as folder:
        return asyncio.run(_measure_sqlite(Path(folder), scale))


async def _measure_sqlite(folder: Path, scale: float) -> list[Figure]:
    rounds = EventRounds(connect(f"sqlite:///{folder}/events.db", SystemClock(), "bench"))
    await rounds.open()
    figures = await write_figures(rounds, scale)
    bare = BareOutbox(folder / "bare.db")
    figures += await _relay_turns(rounds, bare, scale)
    bare.close()
    figures.append(_joined_publish(folder / "events.db", rounds, max(5, int(200 * scale))))
    await rounds.close()
    return figures


def _joined_publish(path: Path, rounds: EventRounds, times: int) -> Figure:
    """By the clock, because its commit waits for the disk."""
    store = rounds.joining
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("CREATE TABLE account (balance)")
    db.execute("INSERT INTO account VALUES (0)")
    db.execute(f"CREATE TABLE bare (seq INTEGER PRIMARY KEY, {_COLUMNS}, UNIQUE (id))")
    ways: list[Callable[[NewEvent], object]] = [
        lambda event: store.publish_in(db, [event]),
        lambda event: db.execute(f"INSERT INTO bare ({_COLUMNS}) VALUES ({_MARKS})", astuple(event)),
    ]
    took: list[list[float]] = [[] for _ in ways]
    for _ in range(times):
        for way, some in zip(ways, took, strict=True):
            began = time.perf_counter()
            db.execute("BEGIN IMMEDIATE")
            db.execute("UPDATE account SET balance = balance + 1")
            way(rounds.event())
            db.execute("COMMIT")
            some.append((time.perf_counter() - began) * 1e6)
    db.close()
    ours, bare = map(statistics.median, took)
    return Figure(ours, bare, "µs", "a transaction with a publish beside a bare INSERT", 1.4, least=False)


MEASURES = [events_sqlite]
