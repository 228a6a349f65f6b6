"""Writes notes that running tasks wait for. Notes that gather during one write go with the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from onthedot.engine.repeated_calls import RepeatedCalls
from onthedot.stores.contract import BATCH, Note, Store

_MAX_BYTES = 8 << 20  # of one write, the last note not counted


class _PendingNote(Struct, frozen=True, gc=False):
    note: Note
    answer: asyncio.Future[bool]


class NoteBatcher:
    """One write at a time. Belongs to the event loop of a worker."""

    def __init__(self, store: Store, calls: RepeatedCalls) -> None:
        self._store = store
        self._calls = calls
        self._pending: deque[_PendingNote] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._solo_write = False  # a run is writing its own note

    async def write(self, note: Note) -> bool:
        """The note is stored when this returns True. False: the lease is lost, and nothing was written."""
        traits = self._store.traits
        if traits.synchronous:
            return not await self._store.note((note,))
        if self._writer is None and not self._solo_write and traits.cancel_safe:
            return await self._write_alone(note)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pending.append(_PendingNote(note, answer))
        if self._writer is None and not self._solo_write:
            self._writer = asyncio.create_task(self._write_all())
        return await answer

    async def _write_alone(self, note: Note) -> bool:
        """Writes in the coroutine of the run: half as many steps of the loop. Notes of other runs gather meanwhile."""
        self._solo_write = True
        try:
            return not await self._calls.run(lambda: self._store.note((note,)))
        finally:
            self._solo_write = False
            if self._pending:
                self._writer = asyncio.create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._pending:
                await self._write(self._take())
        finally:
            self._writer = None

    def _take(self) -> list[_PendingNote]:
        """As many notes as one write takes: a note of items may have 1 MiB."""
        batch: list[_PendingNote] = []
        size = 0
        while self._pending and len(batch) < BATCH and size < _MAX_BYTES:
            pending = self._pending.popleft()
            size += len(pending.note.data)
            batch.append(pending)
        return batch

    async def _write(self, batch: Sequence[_PendingNote]) -> None:
        batch = [each for each in batch if not each.answer.done()]  # the others belong to cancelled runs
        if not batch:
            return
        notes = [each.note for each in batch]
        try:
            lost = await self._calls.run(lambda: self._store.note(notes))
        except Exception as error:  # noqa: BLE001 - one of the notes is to blame: only its task gets the error
            if len(batch) == 1:
                _fail(batch[0], error)
                return
            for each in batch:
                await self._write((each,))
        except BaseException as error:
            for each in batch:
                _fail(each, error)
            raise
        else:
            for each in batch:
                if not each.answer.done():
                    each.answer.set_result(each.note.lease not in lost)


def _fail(pending: _PendingNote, error: BaseException) -> None:
    if pending.answer.done():
        return
    if isinstance(error, asyncio.CancelledError):
        pending.answer.cancel()
    else:
        pending.answer.set_exception(error)
