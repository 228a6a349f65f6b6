"""Iterating over the entries of a stream, in async and in sync code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from onthedot.client.portal import Portal
from onthedot.client.stream_reader import StreamReader
from onthedot.model.failures import error_from_record
from onthedot.model.streams import EntryKind, StreamEntry

V = TypeVar("V")


class StreamSource(NamedTuple):
    """The stream of one task, as a handle reads it.

    decode: of an item
    kind: of its entries
    """

    portal: Portal
    uuid: str
    decode: Callable[[bytes], Any]
    kind: EntryKind = "item"


class _Entries(Generic[V]):
    """One reader of a stream.

    A class and not a generator: it may be dropped at any time, and a cancelled wait for an entry can be repeated.
    """

    def __init__(self, source: StreamSource, after: str, view: Callable[[StreamEntry], V], *, has_end: bool) -> None:
        """view: what the caller gets of an entry. has_end: a last entry tells the end; else the task's error is raised.

        The cursor is checked here, before anything is read.
        """
        self._source = source
        self._view = view
        self._has_end = has_end
        self._reader = StreamReader(source.uuid, after)
        self._is_over = False
        self._is_waiting = False

    def _begin_wait(self) -> None:
        if self._is_waiting:
            raise RuntimeError(f"the stream of task {self._source.uuid} is being read by this iterator already")
        self._is_waiting = True

    def _needs_items(self) -> bool:
        return not self._is_over and not self._reader.ready and self._reader.ended is None

    def _take(self) -> StreamEntry | None:
        """None: there are no more."""
        reader = self._reader
        if reader.ready:
            cursor, data = reader.ready.popleft()
            return StreamEntry(str(cursor), cursor.number, self._source.kind, self._source.decode(data))
        if self._is_over or reader.ended is None:
            return None
        self._is_over = True
        if self._has_end:
            return StreamEntry(str(reader.cursor), reader.cursor.number + 1, "end", reader.ended.state)
        if reader.ended.state != "succeeded":
            raise error_from_record(reader.ended)
        return None


class AsyncEntries(_Entries[V]):
    def __aiter__(self) -> AsyncEntries[V]:
        return self

    async def __anext__(self) -> V:
        if self._needs_items():
            self._begin_wait()
            try:
                await self._source.portal.run(lambda client: client.read_items(self._reader), waits=True)
            finally:
                self._is_waiting = False
        entry = self._take()
        if entry is None:
            raise StopAsyncIteration
        return self._view(entry)


class SyncEntries(_Entries[V]):
    def __iter__(self) -> SyncEntries[V]:
        return self

    def __next__(self) -> V:
        if self._needs_items():
            self._begin_wait()
            try:
                self._source.portal.run_sync(lambda client: client.read_items(self._reader), waits=True)
            finally:
                self._is_waiting = False
        entry = self._take()
        if entry is None:
            raise StopIteration
        return self._view(entry)


def whole(entry: StreamEntry) -> StreamEntry:
    """The entry as it is."""
    return entry


def item(entry: StreamEntry) -> Any:
    """The item alone."""
    return entry.data


def item_with_cursor(entry: StreamEntry) -> tuple[str, Any]:
    return entry.cursor, entry.data
