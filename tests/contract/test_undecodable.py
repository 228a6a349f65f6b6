"""A record that cannot be read ends as failed, alone."""

from __future__ import annotations

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Store
from tests.contract.damage import add_policy_field, damage_policy
from tests.contract.steps import Worker, add, look, names, state, states, task, tasks


async def claim_all(worker: Worker) -> tuple[list[str], dict[str, str]]:
    """Runs and chores of a few turns: a store may find the damage only when it hands the task out."""
    taken: list[str] = []
    chores: dict[str, str] = {}
    for _ in range(3):
        claimed = await worker.claim()
        taken += names(claimed.tasks)
        chores |= {record.uuid: record.history.reason for record in claimed.chores}
    return taken, chores


async def test_record_that_cannot_be_read_ends_as_failed_and_others_run(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    first, bad, last = await add(store, *tasks(3, boost=300_000))
    await damage_policy(store, bad)
    assert await claim_all(worker) == ([first, last], {bad: "undecodable"})
    assert await worker.settle(worker.done(first), worker.failed(bad), worker.done(last)) == ["ok", "ok", "ok"]
    assert await states(store, [first, bad, last]) == ["succeeded", "failed", "succeeded"]


async def test_unreadable_record_does_not_hide_the_alarms_of_others(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(5, after=1000, boost=300_000))
    await damage_policy(store, uuids[2])
    clock.advance(1000)
    assert await claim_all(worker) == ([*uuids[:2], *uuids[3:]], {uuids[2]: "undecodable"})
    assert await worker.settle(worker.failed(uuids[2])) == ["ok"]


@pytest.mark.parametrize("lane", [None, "a/k"])
async def test_unreadable_record_can_be_seen(store: Store, lane: str | None) -> None:
    (uuid,) = await add(store, task(lane=lane, after=1000))
    await damage_policy(store, uuid)
    assert (await look(store, uuid)).history.reason == "undecodable"
    page = await store.find({"source": "a"}, None, 10)
    assert [record.uuid for record in page.rows] == [uuid]


async def test_unreadable_record_can_be_cancelled(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(after=1000, boost=300_000))
    await damage_policy(store, uuid)
    assert await worker.cancel(uuid) == [uuid]
    assert await worker.settle(worker.cancelled(uuid)) == ["ok"]
    assert await state(store, uuid) == "cancelled"


async def test_unreadable_record_in_a_lane_does_not_block_it(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    bad, good = await add(store, *tasks(2, lane="a/k", boost=300_000))
    await damage_policy(store, bad)
    assert await claim_all(worker) == ([good], {bad: "undecodable"})
    assert await worker.settle(worker.failed(bad), worker.done(good)) == ["ok", "ok"]


async def test_field_of_a_newer_version_is_ignored(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    old, new = await add(store, task(boost=1000), task(boost=2000))
    await add_policy_field(store, new)
    assert await worker.runs() == [new, old]
    assert (await look(store, new)).policy.boost == 2000
