"""Work for autovacuum: updates are HOT, so they leave no dead index entries and their page is pruned."""

from __future__ import annotations

from typing import Any

import psycopg

from onthedot.stores.contract import Completed, Ended, Lease, Limit, NewTask, Outcome, Requeued
from onthedot.stores.postgres import PostgresStore
from tests.support.waits import until
from tests.unit.stores.postgres.shop import LEASE, Worker

TASKS = 2_000
ROUND = 100
SESSION = "3f2b1c9e-5d44-4f0a-9a58-0d3c7c1e2b6a"  # as long as real names
UPDATES = "SELECT relname, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'onthedot'"


def updates(url: str) -> dict[str, tuple[int, int]]:
    """By table: all updates, and the HOT ones."""
    with psycopg.connect(url) as connection:
        return {name: (all_, hot) for name, all_, hot in connection.execute(UPDATES) if all_}


async def test_updates_on_the_way_of_a_task_are_hot(empty: str) -> None:
    """Settles, retries, heartbeats, and the tokens of a rate."""
    store = PostgresStore(empty)
    await store.open()
    worker = Worker(store, SESSION)
    leases = list[Lease]()
    await store.heartbeat(SESSION, b"", LEASE)
    await store.put_limits([Limit("b", rate=1e6, burst=1e6)])
    for start in range(0, TASKS, 500):
        await store.add([NewTask(f"u{start + n:05}", "ab"[n % 2], b"x" * 100) for n in range(500)])
    rounds = 0
    while leases or await _has_live_tasks(store):
        claimed = await worker.claim("a", "b", outcomes=[_outcome(lease) for lease in leases], total=ROUND)
        leases = [Lease(record.uuid, claimed.fence, SESSION) for record in claimed.tasks]
        await store.heartbeat(SESSION, b"", LEASE)
        rounds += 1
    await store.close()  # a connection reports its statistics when it ends
    await until(lambda: updates(empty).get("session", (0, 0))[0] >= rounds)
    found = updates(empty)
    print({name: f"{hot} of {all_}" for name, (all_, hot) in found.items()})
    assert found["task"][0] >= TASKS
    assert {name: hot / all_ > 0.9 for name, (all_, hot) in found.items()} == {
        "task": True, "session": True, "token_bucket": True, "version": True,
    }, "and nothing else is updated on the way of a task"  # fmt: skip


async def _has_live_tasks(store: Any) -> bool:
    return any(state in ("ready", "scheduled", "running") for _, state in await store.tally())


def _outcome(lease: Lease) -> Outcome:
    """Every tenth fails, and another tenth is retried a few times."""
    match int(lease.uuid[1:]) % 10:
        case 0:
            return Ended(lease, "failed", b"an error of a few words")
        case 1 if lease.fence % 3:
            return Requeued(lease, 0, counted=True, error=b"an error of a few words")
        case _:
            return Completed(lease, b"a result")
