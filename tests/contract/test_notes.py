"""note: the journal of a task, written under its lease only."""

from __future__ import annotations

from onthedot.stores.contract import Lease, Note, Store
from tests.contract.steps import Worker, add, task


async def written(store: Store, uuid: str) -> list[tuple[str, str, bytes]]:
    return [(note.kind, note.name, note.data) for _, note in await store.notes(uuid, 0, 100)]


async def running(store: Store, worker: Worker) -> str:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    return uuid


async def test_last_progress_is_kept(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    lease = worker.leases[uuid]
    assert list(await store.note([Note(lease, "progress", "p", b"1/9"), Note(lease, "progress", "p", b"2/9")])) == []
    assert list(await store.note([Note(lease, "progress", "p", b"3/9"), Note(lease, "progress", "q", b"1")])) == []
    assert sorted(await written(store, uuid)) == [("progress", "p", b"3/9"), ("progress", "q", b"1")]


async def test_first_error_of_an_attempt_is_kept(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    lease = worker.leases[uuid]
    await store.note([Note(lease, "error", "1", b"first")])
    await store.note([Note(lease, "error", "1", b"second"), Note(lease, "error", "2", b"other")])
    assert sorted(await written(store, uuid)) == [("error", "1", b"first"), ("error", "2", b"other")]


async def test_kinds_of_notes_are_separate(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    lease = worker.leases[uuid]
    await store.note([Note(lease, "error", "1", b"e"), Note(lease, "progress", "1", b"p")])
    assert sorted(await written(store, uuid)) == [("error", "1", b"e"), ("progress", "1", b"p")]


async def test_lost_lease_writes_no_note(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    lease = worker.leases[uuid]
    lost = [Lease(uuid, lease.fence + 1, lease.session), Lease(uuid, lease.fence, "x"), Lease("ghost", 1, "w1")]
    notes = [Note(each, "progress", "p", b"no") for each in lost]
    assert list(await store.note([*notes, Note(lease, "progress", "p", b"yes")])) == lost
    assert await written(store, uuid) == [("progress", "p", b"yes")]


async def test_settled_lease_writes_no_note(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    note = Note(worker.leases[uuid], "progress", "p", b"late")
    await worker.settle(worker.retry(uuid, error=b""))
    assert list(await store.note([note])) == [note.lease]
    await worker.runs()
    assert list(await store.note([note])) == [note.lease]
    await worker.settle(worker.done(uuid))
    assert list(await store.note([note])) == [note.lease]
    assert await written(store, uuid) == []


async def test_lease_of_a_dead_session_writes_no_note(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    await worker.crash()
    lease = worker.leases[uuid]
    assert list(await store.note([Note(lease, "progress", "p", b"late")])) == [lease]


async def test_notes_are_read_in_order_from_a_cursor(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    lease = worker.leases[uuid]
    await store.note([Note(lease, "progress", name, name.encode()) for name in "abcde"])
    first = await store.notes(uuid, 0, 2)
    assert [note.name for _, note in first] == ["a", "b"]
    following = await store.notes(uuid, first[-1][0], 10)
    assert [note.name for _, note in following] == ["c", "d", "e"]
    numbers = [number for number, _ in (*first, *following)]
    assert numbers == sorted(set(numbers))
    assert list(await store.notes(uuid, numbers[-1], 10)) == []


async def test_unknown_task_has_no_notes(store: Store) -> None:
    assert list(await store.notes("ghost", 0, 10)) == []


async def test_notes_are_kept_by_end_and_revive(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    await worker.settle(worker.retry(uuid, error=b"E1"))
    await worker.run_to_failure(uuid)
    await store.revive([uuid])
    assert ("error", "1", b"E1") in await written(store, uuid)


async def test_notes_are_dropped_with_a_task_that_is_not_kept(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    await store.note([Note(worker.leases[uuid], "progress", "p", b"1")])
    await worker.settle(worker.done(uuid, keep=0))
    assert await written(store, uuid) == []


async def test_notes_are_purged_with_their_task(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    await store.note([Note(worker.leases[uuid], "progress", "p", b"1")])
    await worker.settle(worker.done(uuid))
    assert await written(store, uuid) != []
    assert await store.purge(10, 0) == 1
    assert await written(store, uuid) == []


async def test_first_step_and_item_of_a_name_are_kept(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    lease = worker.leases[uuid]
    await store.note([Note(lease, "step", "charge#1", b"first"), Note(lease, "item", "1/0", b"[1]")])
    await store.note([Note(lease, "step", "charge#1", b"second"), Note(lease, "item", "1/0", b"[2]")])
    assert sorted(await written(store, uuid)) == [("item", "1/0", b"[1]"), ("step", "charge#1", b"first")]


async def test_notes_of_one_kind_are_read_from_a_cursor(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    lease = worker.leases[uuid]
    for number in range(5):
        await store.note([Note(lease, "item", str(number), b"[]"), Note(lease, "step", str(number), b"")])
    items = await store.notes(uuid, 0, 3, "item")
    assert [note.name for _, note in items] == ["0", "1", "2"]
    later = await store.notes(uuid, items[-1][0], 10, "item")
    assert [note.name for _, note in later] == ["3", "4"]
    assert len(await store.notes(uuid, 0, 100)) == 10


async def test_steps_are_kept_by_suspensions(store: Store, worker: Worker) -> None:
    uuid = await running(store, worker)
    await store.note([Note(worker.leases[uuid], "step", "s", b"1")])
    await worker.settle(worker.suspended(uuid, ("x", 0)))
    assert await worker.runs() == [uuid]
    assert await written(store, uuid) == [("step", "s", b"1")]
