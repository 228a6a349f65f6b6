"""Concurrency: no cap is exceeded, no task runs twice or is lost, no deadlock."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack

import asyncpg
import pytest

from onthedot.stores.contract import (
    ClaimRequest,
    Completed,
    Ended,
    Lease,
    Limit,
    NewTask,
    Outcome,
    Policy,
    Requeued,
    SlotPool,
    Store,
)
from tests.contract.invariants import check
from tests.support.services.postgres import Service
from tests.support.waits import SOON, until
from tests.unit.stores.postgres.shop import LEASE, Worker, opened

WORKERS = 6


async def test_a_cap_is_never_exceeded_by_concurrent_claims(postgres: Service, named: str) -> None:
    """Each read sees at most as many running tasks as the cap, over all workers."""
    lanes = {f"u{number}": ("b", "a/1", "a/2")[number % 3] for number in range(90)}
    most: Counter[str] = Counter()
    done: list[str] = []

    async def work(number: int) -> None:
        async with opened(postgres, named) as store:
            worker = Worker(store, f"w{number}")
            await store.heartbeat(worker.name, b"", LEASE)
            outcomes: list[Outcome] = []
            while len(done) < len(lanes):
                claimed = await worker.claim("a", "b", outcomes=outcomes, total=2)
                done.extend(outcome.lease.uuid for outcome in outcomes)
                outcomes = [Completed(Lease(record.uuid, claimed.fence, worker.name)) for record in claimed.tasks]
                await asyncio.sleep(0.005)  # the tasks run for a while

    async def watch(store: Store) -> None:
        while len(done) < len(lanes):
            seen = Counter(lanes[record.uuid] for record in (await store.find({"state": "running"}, None, 100)).rows)
            most.update({lane: max(0, number - most[lane]) for lane, number in seen.items()})

    async with opened(postgres, named) as store:
        await store.put_limits([Limit("a/*", cap=2), Limit("b", cap=2)])
        await store.add(
            [NewTask(uuid, lane[0], b"", lane=None if lane == "b" else lane) for uuid, lane in lanes.items()]
        )
        async with asyncio.timeout(50):
            await asyncio.gather(watch(store), *(work(number) for number in range(WORKERS)))
        assert sorted(done) == sorted(lanes)
        assert most == {"a/1": 2, "a/2": 2, "b": 2}
        await check(store)


async def test_the_same_claim_request_on_several_connections_claims_once(postgres: Service, named: str) -> None:
    """A connection broke, and the call is repeated while the server still runs the first: one claim, one answer."""
    async with opened(postgres, named) as store:
        await store.heartbeat("w", b"", LEASE)
        await store.add([NewTask(f"u{number}", "a", b"") for number in range(40)])
        for number in range(1, 5):
            async with AsyncExitStack() as stack:
                others = [await stack.enter_async_context(opened(postgres, named)) for _ in range(3)]
                request = ClaimRequest(number, [SlotPool(5, {"a": 5})])
                turns = await asyncio.gather(*(other.turn("w", [], request) for other in others))
            taken = [[record.uuid for record in turn.claim.tasks] for turn in turns if turn.claim is not None]
            assert taken == [[f"u{n}" for n in range(5 * number - 5, 5 * number)]] * 3
        assert len((await store.find({"state": "running"}, None, 100)).rows) == 20


async def test_random_verbs_from_many_connections_end_every_task_once(postgres: Service, named: str) -> None:
    """Afterwards every task ends exactly once, and the tallies agree."""
    dice = random.Random(7)
    uuids = [f"u{number}" for number in range(400)]
    ended: Counter[str] = Counter()

    async def live(number: int) -> None:
        async with opened(postgres, named) as store:
            worker = Worker(store, f"w{number}")
            await store.heartbeat(worker.name, b"", LEASE)
            leased: list[Lease] = []
            for _ in range(40):
                match dice.randrange(11):
                    case 0:
                        await store.cancel(worker.name, dice.sample(uuids, 5))
                    case 1:
                        await store.revive(dice.sample(uuids, 5))
                    case 2:
                        await store.purge(10)
                    case 3:
                        await store.heartbeat(worker.name, b"", LEASE)
                    case 4:
                        await store.add([_new(dice, dice.choice(uuids)) for _ in range(3)])
                    case 5:
                        lifted = await store.lift(worker.name, dice.sample(uuids, 5))
                        leases = [Lease(record.uuid, lifted.fence, worker.name) for record in lifted.tasks]
                        await store.turn(worker.name, [Requeued(lease, None, counted=False) for lease in leases], None)
                    case _:
                        some = dice.sample(leased, min(len(leased), 6))
                        leased = [lease for lease in leased if lease not in some]
                        turned = await worker.claim("a", "b", outcomes=[_outcome(dice, lease) for lease in some])
                        leased += [Lease(r.uuid, turned.fence, worker.name) for r in (*turned.tasks, *turned.chores)]
            await store.close_session(worker.name)

    async with opened(postgres, named) as store:
        await store.put_limits([Limit("a/*", cap=3), Limit("b", cap=20), Limit("@s", rate=1000.0, burst=50)])
        await store.add([_new(dice, uuid) for uuid in uuids])
        async with asyncio.timeout(50):
            await asyncio.gather(*(live(number) for number in range(WORKERS)))
        await check(store)
        worker = Worker(store, "last")
        await store.heartbeat(worker.name, b"", LEASE)
        outcomes: list[Outcome] = []
        async with asyncio.timeout(30):
            while True:
                claimed = await worker.claim("a", "b", outcomes=outcomes, total=100)
                ended.update(outcome.lease.uuid for outcome in outcomes)
                outcomes = [
                    Completed(Lease(record.uuid, claimed.fence, worker.name))
                    for record in (*claimed.tasks, *claimed.chores)
                ]
                if not outcomes and not any(state in LIVE for _, state in await store.tally()):
                    break
        assert set(ended.values()) <= {1}
        await check(store)


LIVE = ("scheduled", "parked", "ready", "running")


def _new(dice: random.Random, uuid: str) -> NewTask:
    lane = dice.choice([None, "a/1", "a/2", "@s"])
    policy = Policy(
        max_crashes=dice.choice([1, 3]), on_conflict=dice.choice(["keep", "replace"]), boost=dice.choice([0, 50])
    )
    unique = dice.choice([None, None, f"k{dice.randrange(40)}"])
    return NewTask(uuid, dice.choice("ab"), b"", after=dice.choice([0, 0, 5]), lane=lane, unique=unique, policy=policy)


def _outcome(dice: random.Random, lease: Lease) -> Outcome:
    match dice.randrange(5):
        case 0:
            return Requeued(lease, dice.choice([None, 0, 5]), counted=True, error=b"e")
        case 1:
            return Ended(lease, "failed", b"e", dice.choice([0, 1, 60_000]))
        case _:
            return Completed(lease, b"r", dice.choice([0, 60_000]))


async def test_session_that_is_reported_dead_during_a_turn_stays_dead(postgres: Service, named: str) -> None:
    """The row of the session is locked by its turn, so the report cannot reap it; heartbeats must not renew it."""
    async with opened(postgres, named) as store:
        worker = Worker(store, "w")
        other = Worker(store, "other")
        for name in ("w", "other"):
            await store.heartbeat(name, b"", LEASE)
        await store.add([NewTask("u1", "a", b"")])
        await worker.claim()
        connection = await asyncpg.connect(postgres.url)
        async with connection.transaction():
            await connection.execute("SELECT FROM onthedot.session WHERE name = 'w' FOR KEY SHARE")  # as a turn does
            await store.close_session("w", crashed=True)
            assert not (await store.heartbeat("w", b"", LEASE)).alive
            assert (await other.claim()).tasks == [], "the turn may still settle"
        await connection.close()
        assert [record.uuid for record in (await other.claim()).tasks] == ["u1"]
        assert not (await store.turn("w", [], None)).alive


@pytest.mark.parametrize("most", [100, 0], ids=["after its time", "beyond the maximum"])
async def test_purge_deletes_later_what_another_call_has_locked(postgres: Service, named: str, most: int) -> None:
    async with opened(postgres, named) as store:
        worker = Worker(store, "w")
        await store.heartbeat("w", b"", LEASE)
        await store.add([NewTask(f"u{number}", "a", b"") for number in range(3)])
        claimed = await worker.claim()
        keep = 0 if most else 60_000
        leases = [Lease(record.uuid, claimed.fence, "w") for record in claimed.tasks]
        await store.turn("w", [Completed(lease, b"r", max(1, keep)) for lease in leases], None)
        connection = await asyncpg.connect(postgres.url)
        async with connection.transaction():
            await connection.execute("SELECT FROM onthedot.task WHERE uuid = 'u1' FOR UPDATE")  # as a revival does
            async with asyncio.timeout(SOON):
                await until(lambda: _has_purged(store, most, {"u1"}))
            assert [record.uuid for record in (await store.find({"state": "succeeded"}, None, 9)).rows] == ["u1"]
        await connection.close()
        assert await store.purge(100, most) == 1
        assert await store.get(["u1"]) == [None]


async def _has_purged(store: Store, most: int, left: set[str]) -> bool:
    await store.purge(100, most)
    return {record.uuid for record in (await store.find({}, None, 9)).rows} == left
