"""Settling is set-based: a hundred outcomes take as many function calls in the database as ten, whatever their kind."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onthedot.stores.contract import Completed, Effects, Limit, NewTask, Outcome
from onthedot.stores.postgres import PostgresStore
from onthedot.stores.postgres.connections import PostgresConnection
from tests.contract.event_steps import event
from tests.contract.steps import Worker, add, member, task, waiting
from tests.support.services.postgres import Service
from tests.unit.stores.postgres.shop import opened


def new_tasks(kind: str, names: Sequence[str]) -> list[NewTask]:
    match kind:
        case "unique key" | "key and new task with a key":
            return [task(unique=name) for name in names]
        case "lane":
            return [task(lane=f"a/{name}") for name in names]
        case "one lane":
            return [task(lane=f"a/{kind}") for _ in names]
        case "member of a flow":
            return [member("f", f"f-{len(names)}") for _ in names]
        case _:
            return [task() for _ in names]


async def outcomes_of(store: PostgresStore, worker: Worker, kind: str, number: int) -> Sequence[Outcome]:
    names = [f"{kind}-{number}-{each}" for each in range(number)]
    uuids = await add(store, *new_tasks(kind, names))
    if kind == "chore":
        assert sorted(await worker.cancel(*uuids)) == sorted(uuids)
        return [worker.cancelled(uuid) for uuid in uuids]
    assert sorted(await worker.runs()) == sorted(uuids)
    match kind:
        case "new task":
            return [worker.done(uuid, adds=[task("b")]) for uuid in uuids]
        case "key and new task with a key":
            spawned = [task("b", unique=name) for name in names]
            return [worker.done(uuid, adds=[new]) for uuid, new in zip(uuids, spawned, strict=True)]
        case "new waiting task":
            return [
                worker.done(uuid, adds=[waiting((name, 1), source="b")])
                for uuid, name in zip(uuids, names, strict=True)
            ]
        case "event":
            return [
                Completed(worker.leases[uuid], effects=Effects(events=(event(name, event_id=name),)))
                for uuid, name in zip(uuids, names, strict=True)
            ]
        case "retry with an event":
            return [
                worker.retry(uuid, effects=Effects(events=(event(name, event_id=name),)))
                for uuid, name in zip(uuids, names, strict=True)
            ]
        case "suspended":
            return [worker.suspended(uuid, (name, 1)) for uuid, name in zip(uuids, names, strict=True)]
        case "retry":
            return [worker.retry(uuid, after=1000) for uuid in uuids]
        case "release":
            return [worker.release(uuid) for uuid in uuids]
        case "dropped":
            return [worker.done(uuid, keep=0) for uuid in uuids]
        case _:
            return [worker.done(uuid) for uuid in uuids]


async def calls_to_settle(store: PostgresStore, worker: Worker, outcomes: Sequence[Outcome]) -> int:
    """The number of PL/pgSQL functions that are called meanwhile."""
    connection = store.connections.turn
    await connection.with_connection(lambda raw: raw.execute("BEGIN; SET LOCAL track_functions = 'pl'"))
    before = await calls(connection)
    assert await worker.settle(*outcomes) == ["ok"] * len(outcomes)
    number = await calls(connection) - before
    await connection.with_connection(lambda raw: raw.execute("COMMIT"))
    return number


async def calls(connection: PostgresConnection) -> int:
    """So far, by this server process."""
    row = await connection.row("SELECT coalesce(sum(calls), 0)::integer AS number FROM pg_stat_xact_user_functions")
    number: int = row["number"]
    return number


KINDS = (
    "plain", "new task", "unique key", "key and new task with a key", "lane", "one lane", "chore", "retry",
    "release", "dropped", "member of a flow", "new waiting task", "suspended", "event", "retry with an event",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_do_not_grow_with_the_number_of_outcomes(postgres: Service, named: str, kind: str) -> None:
    async with opened(postgres, named) as store:
        worker = Worker(store, "w")
        await worker.heartbeat()
        await store.put_limits([Limit("a/*", cap=1000)])
        few = await calls_to_settle(store, worker, await outcomes_of(store, worker, kind, 10))
        await worker.runs("a", "b")
        many = await calls_to_settle(store, worker, await outcomes_of(store, worker, kind, 100))
        assert many == few
