"""Saved items of a task: its current epoch, and the result of a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from onthedot.codec.results import store_many
from onthedot.errors import ResultNotStored
from onthedot.model.streams import Cursor, ItemNote, read_note, streamed_items
from onthedot.stores.contract import Note, Record, Store

PAGE = 100  # notes; each may have 1 MiB

ReadItems: TypeAlias = Callable[[int], Awaitable[Sequence[tuple[int, Note]]]]
"""Reads up to PAGE notes of items after a number."""


class SavedStream(NamedTuple):
    """The saved items of a task. The epoch of the newest note is current; notes of older ones are left out."""

    epoch: int  # 0: there are none
    notes: list[ItemNote]
    after: int  # number of the last note
    size: int  # bytes, those of older epochs included

    @property
    def length(self) -> int:
        """Items of the current epoch."""
        if not self.notes:
            return 0
        return self.notes[-1].last

    def items(self) -> list[bytes]:
        """The stored items of the current epoch."""
        return [item for note in self.notes for item in note.items()]


class StreamSlice(NamedTuple):
    """Some entries of a stream. has_restarted: the cursor was of an epoch that is over, so these are the first ones."""

    entries: list[tuple[Cursor, bytes]]
    has_restarted: bool


async def read_after(read: ReadItems, after: Cursor, limit: int) -> StreamSlice:
    """The next saved items after a cursor, with the cursor after each."""
    saved = await read_stream(read)
    has_restarted = after.epoch not in (0, saved.epoch)
    first = 0 if has_restarted else after.number
    items = saved.items()[first : first + limit]
    return StreamSlice([(Cursor(saved.epoch, first + n), item) for n, item in enumerate(items, 1)], has_restarted)


def item_reader(store: Store, uuid: str) -> ReadItems:
    async def read(after: int) -> Sequence[tuple[int, Note]]:
        return await store.notes(uuid, after, PAGE, "item")

    return read


async def read_stream(read: ReadItems) -> SavedStream:
    """All notes of the current epoch."""
    epoch = 0
    notes: list[ItemNote] = []
    after = 0
    size = 0
    while True:
        page = await read(after)
        for number, stored in page:
            note = read_note(stored)
            after = number
            size += len(note.data)
            if note.epoch != epoch:  # fences can fall back after a failover, so the newest counts, not the largest
                epoch = note.epoch
                notes.clear()
            notes.append(note)
        if len(page) < PAGE:
            return SavedStream(epoch, notes, after, size)


async def with_items(store: Store, record: Record) -> Record:
    """The task with its items as its result, if it is a stream that has succeeded; any other as it is."""
    result = streamed_items(record)
    if result is None:
        return record
    saved = await read_stream(item_reader(store, record.uuid))
    items: list[bytes] = []
    if saved.epoch == result.epoch:  # otherwise a run without items has begun the stream again
        items = saved.items()
    if len(items) < result.count:
        raise ResultNotStored(
            f"task {record.uuid} succeeded with {result.count:,} items, of which the store has {len(items):,}"
        )
    return replace(record, history=replace(record.history, result=store_many(items)))
