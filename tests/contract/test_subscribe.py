"""subscribe: hints about the ends and new items of tasks."""

from __future__ import annotations

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import CLIENT_LEASE, NewSignal, Note, Store
from tests.contract.steps import Worker, add, member, task, waiting
from tests.contract.test_hints import Listener, listening


async def client(store: Store, name: str, *uuids: str) -> Listener:
    listener = Listener(store, name)
    await listener.connected()
    await store.subscribe(name, uuids)
    return listener


async def test_subscriber_hears_of_new_items_and_of_the_end(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    first, second = await add(store, task(), task())
    await worker.runs()
    listener = await client(store, "c", first, second)
    await store.note([Note(worker.leases[first], "item", "1/0", b"[1]")])
    hint = await listener.hears(lambda hint: hint.new_items)
    assert hint.new_items == {first}
    await worker.settle(worker.done(second))
    await listener.hears_the_end_of(second)
    await worker.settle(worker.failed(first, keep=0))
    await listener.hears_the_end_of(first)
    await listener.leave()


async def test_every_subscriber_hears(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    listeners = [await client(store, name, uuid) for name in ("c", "d")]
    await store.subscribe("c", [uuid])
    await store.note([Note(worker.leases[uuid], "item", "1/0", b"[1]")])
    for listener in listeners:
        await listener.hears(lambda hint: uuid in hint.new_items)
    await worker.settle(worker.done(uuid))
    for listener in listeners:
        await listener.hears_the_end_of(uuid)
        await listener.leave()


async def test_other_notes_are_not_reported(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    listener = await client(store, "c", uuid)
    await store.note([Note(worker.leases[uuid], "progress", "", b"1"), Note(worker.leases[uuid], "step", "s", b"1")])
    await worker.settle(worker.done(uuid))
    hint = await listener.hears(lambda hint: hint.new_items or hint.ended)
    assert (hint.new_items, hint.ended) == (frozenset(), {uuid})
    await listener.leave()


async def test_subscription_ends_with_its_session(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    listener = await client(store, "c", uuid)
    clock.advance(CLIENT_LEASE)
    await worker.claim("none")
    await store.note([Note(worker.leases[uuid], "item", "1/0", b"[1]")])
    await store.subscribe("c", [uuid])
    await worker.settle(worker.done(uuid))
    hint = await listener.hears(lambda hint: hint.new_items or hint.ended)
    assert (hint.new_items, hint.ended) == (frozenset(), {uuid}), "the session was reaped before the item"
    await listener.leave()


async def test_ended_and_unknown_tasks_are_ignored(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    await worker.settle(worker.done(uuid))
    listener = await client(store, "c", uuid, "nobody")
    await listener.leave()


# -- hints about waits


async def test_end_that_ends_a_wait_is_hinted_to_idle_workers(store: Store, worker: Worker, other: Worker) -> None:
    listener = await listening(store, worker)
    await other.heartbeat()
    (child,) = await add(store, member("f", source="b"))
    await add(store, waiting(("f", 1)))
    await other.runs("b")
    await worker.claim("none")
    await other.settle(other.done(child))  # without a claim request
    await listener.hears(lambda hint: hint.recheck or "a" in hint.sources)
    assert len(await worker.runs()) == 1
    await listener.leave()


async def test_signal_that_ends_a_wait_is_hinted(store: Store, worker: Worker) -> None:
    listener = await listening(store, worker)
    await add(store, waiting(("~paid", 1)))
    await worker.claim("none")
    await store.signal([NewSignal("~paid", "1")])
    await listener.hears(lambda hint: hint.recheck or "a" in hint.sources)
    assert len(await worker.runs()) == 1
    await listener.leave()


async def test_task_whose_wait_is_over_at_once_is_hinted(store: Store, worker: Worker) -> None:
    listener = await listening(store, worker)
    await add(store, waiting(("f", 0)))
    await listener.hears(lambda hint: hint.recheck or "a" in hint.sources)
    assert len(await worker.runs()) == 1
    await listener.leave()


async def test_timeout_of_a_wait_is_hinted_as_an_alarm(store: Store, worker: Worker) -> None:
    listener = await listening(store, worker)
    await add(store, waiting(("f", 1), timeout=1000))
    await listener.hears(lambda hint: hint.recheck or "a" in hint.sources)
    assert (await worker.claim()).next_in == 1000
    await listener.leave()
