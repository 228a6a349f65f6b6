"""offer: an idle worker offers to take tasks; with or without a hand-off, the next request returns them."""

from __future__ import annotations

from onthedot.stores.contract import HandoffOffer, Store
from tests.contract.steps import Worker, add, names, state, task, tasks
from tests.contract.test_hints import listening

FOR = 1000.0


async def test_offered_task_is_returned_by_the_next_request(store: Store, worker: Worker) -> None:
    listener = await listening(store, worker)
    await worker.claim(offer=HandoffOffer({"a": 5}, FOR))
    (uuid,) = await add(store, task())
    hint = await listener.hears(lambda hint: hint.handoff or "a" in hint.sources)
    claimed = await worker.claim()
    assert names(claimed.tasks) == [uuid]
    assert await state(store, uuid) == "running"
    if hint.handoff is not None:
        assert (hint.handoff.number, hint.handoff.leased.fence, names(hint.handoff.leased.tasks)) == (
            worker.number,
            claimed.fence,
            [uuid],
        )
    assert await worker.settle(worker.done(uuid)) == ["ok"]
    await listener.leave()


async def test_task_is_handed_to_one_worker(store: Store, worker: Worker, other: Worker) -> None:
    first = await listening(store, worker)
    second = await listening(store, other)
    for each in (worker, other):
        await each.claim(offer=HandoffOffer({"a": 1}, FOR))
    added = await add(store, *tasks(1)) + await add(store, *tasks(1))
    assert sorted([*await worker.runs(total=2), *await other.runs(total=2)]) == sorted(added)
    await first.leave()
    await second.leave()


async def test_new_request_ends_the_offer(store: Store, worker: Worker, other: Worker) -> None:
    listener = await listening(store, worker)
    await other.heartbeat()
    await worker.claim(offer=HandoffOffer({"a": 5}, FOR))
    await worker.claim()
    (uuid,) = await add(store, task())
    assert await other.runs() == [uuid]
    await listener.leave()


async def test_request_with_an_offer_claims_ready_tasks_first(store: Store, worker: Worker, other: Worker) -> None:
    listener = await listening(store, worker)
    await other.heartbeat()
    (first,) = await add(store, task())
    assert names((await worker.claim(offer=HandoffOffer({"a": 5}, FOR))).tasks) == [first]
    (second,) = await add(store, task())
    assert await other.runs() == [second], "a worker with a running task gets no hand-off"
    await listener.leave()
