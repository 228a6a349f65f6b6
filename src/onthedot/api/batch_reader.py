"""Reads the parts of a batch: the stored ones, and those to come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from onthedot.api.stream_entries import AsyncEntries, StreamSource, SyncEntries
from onthedot.batches.parts import BatchResult, Part, batch_result, public_part
from onthedot.client.client import StoreClient
from onthedot.client.portal import Portal
from onthedot.client.stream_reader import StreamReader
from onthedot.model.batch_names import batch_task
from onthedot.model.failures import error_from_record
from onthedot.model.stored_batches import StoredPart, read_part, read_request
from onthedot.model.streams import StreamEntry

T = TypeVar("T")


class BatchReader(Generic[T]):
    """Reads the parts of one batch. decoder: of results, by source."""

    def __init__(self, portal: Portal, batch: str, decoder: Callable[[str], Callable[[bytes], Any]]) -> None:
        self.portal = portal
        self.batch = batch
        self._decoder = decoder
        self._decode: Callable[[bytes], Any] | None = None

    @property
    def is_prepared(self) -> bool:
        return self._decode is not None

    async def prepare(self, client: StoreClient) -> None:
        """Finds how items are decoded, by the task that makes them. Raises TaskNotFound."""
        if self._decode is None:
            record = await client.operations.batches.record(self.batch)
            self._decode = self._decoder(batch_task(record.source) or "")

    def source(self) -> StreamSource:
        return StreamSource(self.portal, self.batch, read_part, "part")

    def part(self, number: int, stored: StoredPart) -> Part[T]:
        assert self._decode is not None
        return public_part(number, stored, self._decode)

    def entry(self, entry: StreamEntry) -> StreamEntry:
        if entry.kind == "end":
            return entry
        return replace(entry, data=self.part(entry.number, entry.data))

    async def first(self, client: StoreClient) -> Part[T]:
        """The first part with an item; raises the error of the batch if there is none."""
        await self.prepare(client)
        reader = StreamReader(self.batch, "")
        while True:
            await client.read_items(reader)
            while reader.ready:
                cursor, data = reader.ready.popleft()
                part = self.part(cursor.number, read_part(data))
                if part.items:
                    return part
            if reader.ended is not None:
                raise error_from_record(reader.ended)

    async def all(self, client: StoreClient) -> BatchResult[T]:
        await self.prepare(client)
        reader = StreamReader(self.batch, "")
        stored: list[StoredPart] = []
        while reader.ended is None:
            await client.read_items(reader)
            stored += [read_part(item.data) for item in reader.ready]
            reader.ready.clear()
        if reader.ended.state != "succeeded":
            raise error_from_record(reader.ended)
        parts = [self.part(number, part) for number, part in enumerate(stored, 1)]
        return batch_result(read_request(reader.ended), stored, parts)


class AsyncPartEntries(AsyncEntries[StreamEntry]):
    """The entries of a batch. As its base, it can be dropped at any time."""

    def __init__(self, reader: BatchReader[Any], after: str = "", *, has_end: bool) -> None:
        super().__init__(reader.source(), after, reader.entry, has_end=has_end)
        self._batch = reader

    async def __anext__(self) -> StreamEntry:
        if not self._batch.is_prepared:
            await self._batch.portal.run(self._batch.prepare)
        return await super().__anext__()


class SyncPartEntries(SyncEntries[StreamEntry]):
    def __init__(self, reader: BatchReader[Any], after: str = "", *, has_end: bool) -> None:
        super().__init__(reader.source(), after, reader.entry, has_end=has_end)
        self._batch = reader

    def __next__(self) -> StreamEntry:
        if not self._batch.is_prepared:
            self._batch.portal.run_sync(self._batch.prepare)
        return super().__next__()
