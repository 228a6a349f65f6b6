"""Events on Postgres: ``./dev bench events``. Costs are CPU time of this process and of the server's, in one run."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.events import LOGGED, MARKED, TURN, EventRounds, alternate, speed, write_figures
from benchmarks.postgres import server
from benchmarks.report import Figure
from onthedot.clock.system import SystemClock
from onthedot.stores.contract import NewEvent
from onthedot.stores.postgres import PostgresStore

_TABLE = """CREATE TABLE bare (
    seq bigserial PRIMARY KEY, id text NOT NULL UNIQUE, topic text, key text, bucket smallint, type text,
    version int, aggregate_type text, aggregate_id text, correlation_id text, causation_id text, retries int,
    occurred_at bigint, payload json, headers json, sent_at bigint)"""
_COLUMNS = """id, topic, key, bucket, type, version, aggregate_type, aggregate_id, correlation_id, causation_id,
    retries, occurred_at, payload, headers"""
_INSERT = f"INSERT INTO bare ({_COLUMNS}) VALUES ({', '.join(f'${n}' for n in range(1, 15))})"


def _row(event: NewEvent) -> tuple[Any, ...]:
    assert event.payload is not None
    assert event.headers is not None
    return (
        event.id, event.topic, event.key, event.bucket, event.type, event.version, event.aggregate_type,
        event.aggregate_id, event.correlation_id, event.causation_id, event.retries, event.occurred_at,
        event.payload.decode(), event.headers.decode(),
    )  # fmt: skip


def _event(row: Any) -> NewEvent:
    """After seq come the columns of `_row`."""
    *fields, payload, headers = row[1:]
    return NewEvent(*fields, payload.encode(), None, headers.encode())


def _cpu(pid: int) -> float:
    """Seconds of a server process."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


class Cost:
    """CPU time of this process, and of the server processes of these connections."""

    def __init__(self) -> None:
        self.pids: list[int] = []

    def __call__(self) -> float:
        return time.process_time() + sum(map(_cpu, self.pids))


class BareOutbox:
    """The shortest outbox on Postgres: one table, an index on what is unsent, two statements per turn."""

    def __init__(self, connection: Any, cost: Callable[[], float]) -> None:
        self._connection = connection
        self._cost = cost

    async def open(self, events: list[NewEvent]) -> None:
        await self._connection.execute(_TABLE)
        await self._connection.execute("CREATE INDEX unsent ON bare (seq) WHERE sent_at IS NULL")
        await self._connection.executemany(_INSERT, [_row(event) for event in events])

    async def turn(self) -> float:
        began = self._cost()
        found = await self.read()
        await self.mark([seq for seq, _ in found])
        assert len(found) == TURN
        return (self._cost() - began) * 1e6

    async def read(self) -> list[tuple[int, NewEvent]]:
        query = f"SELECT seq, {_COLUMNS} FROM bare WHERE sent_at IS NULL ORDER BY seq LIMIT {TURN}"
        return [(row["seq"], _event(row)) for row in await self._connection.fetch(query)]

    async def mark(self, seqs: list[int]) -> None:
        update = "UPDATE bare SET sent_at = 1700000000000 WHERE seq = ANY ($1)"
        await self._connection.execute(update, seqs)


async def _relay_turns(rounds: EventRounds, connection: Any, cost: Cost, scale: float) -> list[Figure]:
    turns = max(3, int(20 * scale))
    await rounds.fill(turns * 2)
    bare = BareOutbox(connection, cost)
    await bare.open([rounds.event() for _ in range(TURN * turns)])
    marked, logged, other = await alternate(
        turns, lambda: rounds.relay(to_log=False), lambda: rounds.relay(to_log=True), bare.turn
    )
    return [
        speed(TURN, marked, other, MARKED, None),
        speed(TURN, logged, other, LOGGED, None),
    ]


async def _joined_publish(rounds: EventRounds, store: PostgresStore, connection: Any, times: int) -> Figure:
    """By the clock, because its commit waits for the disk."""
    await connection.execute("CREATE TABLE account (balance bigint)")
    await connection.execute("INSERT INTO account VALUES (0)")
    ways: list[Callable[[NewEvent], Awaitable[object]]] = [
        lambda event: store.publish_awaited(connection, [event]),
        lambda event: connection.execute(_INSERT, *_row(event)),
    ]
    took: list[list[float]] = [[] for _ in ways]
    for _ in range(times):
        for way, some in zip(ways, took, strict=True):
            began = time.perf_counter()
            async with connection.transaction():
                await connection.execute("UPDATE account SET balance = balance + 1")
                await way(rounds.event())
            some.append((time.perf_counter() - began) * 1e6)
    ours, bare = map(statistics.median, took)
    return Figure(ours, bare, "µs", "a transaction with a publish beside a bare INSERT", 1.4, least=False)


async def _measure(url: str, scale: float) -> list[Figure]:
    import asyncpg

    store = PostgresStore(url, SystemClock(), "bench")
    cost = Cost()
    rounds = EventRounds(store, cost)
    await rounds.open()
    connection = await asyncpg.connect(url)
    await rounds.fill(0)  # opens all connections
    await rounds.settle(with_events=True)
    cost.pids = [each.server_pid for each in store.connections.all if each.server_pid is not None]
    cost.pids.append(connection.get_server_pid())
    figures = await write_figures(rounds, scale)
    figures += await _relay_turns(rounds, connection, cost, scale)
    figures.append(await _joined_publish(rounds, store, connection, max(5, int(200 * scale))))
    await connection.close()
    await rounds.close()
    return figures


def events_postgres(scale: float) -> list[Figure]:
    with server() as url:
        return asyncio.run(_measure(url, scale))


MEASURES = [events_postgres]
