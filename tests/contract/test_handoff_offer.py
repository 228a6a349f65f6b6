"""waits: who has nothing to do says what it would take; whether a store hands it out or not, the next ask has it."""

from __future__ import annotations

from onthedot.stores.contract import HandoffOffer, Store
from tests.contract.steps import Worker, add, names, state, task, tasks
from tests.contract.test_hints import listening

FOR = 1000.0


async def test_what_it_waited_for_is_its_next_asks(store: Store, worker: Worker) -> None:
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


async def test_it_is_handed_out_once(store: Store, worker: Worker, other: Worker) -> None:
    first, second = await listening(store, worker), await listening(store, other)
    for each in (worker, other):
        await each.claim(offer=HandoffOffer({"a": 1}, FOR))
    added = await add(store, *tasks(1)) + await add(store, *tasks(1))
    assert sorted([*await worker.runs(total=2), *await other.runs(total=2)]) == sorted(added)
    await first.leave()
    await second.leave()


async def test_who_asks_waits_no_more(store: Store, worker: Worker, other: Worker) -> None:
    listener = await listening(store, worker)
    await other.heartbeat()
    await worker.claim(offer=HandoffOffer({"a": 5}, FOR))
    await worker.claim()
    (uuid,) = await add(store, task())
    assert await other.runs() == [uuid]
    await listener.leave()


async def test_it_takes_what_is_there_first(store: Store, worker: Worker, other: Worker) -> None:
    listener = await listening(store, worker)
    await other.heartbeat()
    (first,) = await add(store, task())
    assert names((await worker.claim(offer=HandoffOffer({"a": 5}, FOR))).tasks) == [first]
    (second,) = await add(store, task())
    assert await other.runs() == [second], "who runs something does not wait"
    await listener.leave()
