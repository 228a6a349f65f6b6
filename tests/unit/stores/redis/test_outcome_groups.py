"""Outcomes are settled in groups, with the same result as in the memory store."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import (
    ClaimRequest,
    Completed,
    Ended,
    Lease,
    Links,
    NewTask,
    Outcome,
    Policy,
    Requeued,
    SlotPool,
    Store,
    Suspended,
    Wait,
)
from onthedot.stores.memory import MemoryStore
from onthedot.stores.redis import RedisStore
from tests.support.services import valkey

POLICIES = [Policy()] * 4 + [Policy(max_crashes=1), Policy(reply_to="w"), Policy(tags=("x",)), Policy(unique_for=100)]
LINKS = [None] * 4 + [Links(None, ("f", "g")), Links(None, ("g",), Wait((("f", 2),), delay=3, requires="success"))]


def drawn(chance: random.Random, number: int) -> NewTask:
    """Most tasks are equal; uuids have both forms and several lengths."""
    return NewTask(
        chance.choice([f"t{number:03}" + "x" * chance.choice([0, 0, 1, 40]), str(UUID(int=number << 90))]),
        chance.choice(["a", "a", "a", "b"]),
        chance.choice([b"", b"body"]),
        lane=chance.choice([None] * 5 + ["a/k"]),
        unique=chance.choice([None] * 5 + [f"k{number}"]),
        policy=chance.choice(POLICIES),
        links=chance.choice(LINKS),
    )


def outcome(chance: random.Random, lease: Lease) -> Outcome:
    result = chance.choice([b"", b"1", b"22"])
    keep = chance.choice([1000, 1000, 1000, 0])
    match chance.choice(["done"] * 8 + ["failed", "again", "wait"]):
        case "failed":
            return Ended(lease, "failed", b"error", keep)
        case "again":
            return Requeued(lease, 0, counted=True, error=b"")
        case "wait":
            return Suspended(lease, Wait((("f", 5), ("g", 3)), timeout=20))
    return Completed(lease, result, keep, keep_result=chance.choice([None, 500, 500, 1000, 2000]))


async def life(store: Store, clock: ManualClock, seed: int) -> list[Any]:
    """All that can be read of the store, without fences."""
    chance = random.Random(seed)
    seen = list[Any]()
    tasks = [drawn(chance, number) for number in range(60)]
    uuids = [task.uuid for task in tasks]
    await store.heartbeat("w", b"", 10**9)
    await store.add(tasks)
    clock.advance(1)

    async def look() -> None:
        found = [record for record in await store.get(uuids) if record is not None]
        seen.append([(r.uuid, r.state, r.due, r.history.retries, r.history.reason) for r in found])
        seen.append(
            [
                (r.history.started, r.history.ended, r.history.keep_until, r.history.result, r.history.error)
                for r in found
            ]
        )
        seen.append(await store.counters(["f", "g"]))
        seen.append({(source, state): number for (source, state), number in (await store.tally()).items()})

    for number in range(1, 6):
        turn = await store.turn("w", [], ClaimRequest(number, [SlotPool(60, {"a": 60, "b": 60})], max_suspects=60))
        assert turn.claim is not None
        seen.append([record.uuid for record in turn.claim.tasks])
        clock.advance(7)
        leases = [Lease(record.uuid, turn.claim.fence, "w") for record in turn.claim.tasks]
        outcomes = [outcome(chance, lease) for lease in leases]
        if outcomes:
            outcomes.append(outcomes[0])  # once more in the same call: it has settled
        seen.append((await store.turn("w", outcomes, None)).verdicts)
        await look()
    for later in (499, 2, 600):
        clock.advance(later)
        seen.append(await store.purge(1000))
        await look()
    return seen


@pytest.mark.parametrize("seed", range(8))
async def test_mixed_outcomes_settle_as_in_the_memory_store(seed: int) -> None:
    clock = ManualClock()
    wanted = await life(MemoryStore(clock), clock, seed)
    clock = ManualClock()
    store = RedisStore(valkey.url(), clock, valkey.new_name())
    await store.open()
    try:
        assert await life(store, clock, seed) == wanted
    finally:
        await store.close()
        valkey.forget(store.prefix)
