"""Reading the items of a task, from any process, while it runs or afterwards."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from onthedot.client.result_waiter import ItemHints, ResultWaiter
from onthedot.errors import StreamRestarted, TaskNotFound
from onthedot.model.streams import Cursor, ItemNote, parse_cursor, read_note, streamed_items
from onthedot.model.task import NAME
from onthedot.operations.streams import PAGE, item_reader, read_stream
from onthedot.stores.contract import CLIENT_LEASE, ENDED, Record, Store

_RENEW = CLIENT_LEASE / 2000  # seconds: a session that only subscribes must do so again before its lease ends
_POLL = 1.0  # seconds: a hint may be lost


class ReadItem(NamedTuple):
    """A stored item, and the cursor after it."""

    cursor: Cursor
    data: bytes


class StreamReader:
    """Reads one stream from a cursor on.

    In the store it holds a subscription, which ends by itself; in the client nothing, once it is dropped.
    What was read stays in `ready` until it is taken, so that a cancelled `fill` loses nothing.

    after: the cursor of an entry, or ""
    """

    def __init__(self, uuid: str, after: str) -> None:
        self.uuid: str = uuid
        self.cursor: Cursor = parse_cursor(after)
        self.ready: deque[ReadItem] = deque()
        self.ended: Record | None = None  # the task; there are no more items than those in `ready`
        self._position = 0  # number of the last note that was read
        self._is_behind = False  # there are more notes than the last page had
        self._hints: ItemHints | None = None
        self._waiter: ResultWaiter | None = None
        self._forget: weakref.finalize[..., StreamReader] | None = None
        self._subscribed_at: float | None = None

    async def fill(self, store: Store, waiter: ResultWaiter) -> None:
        """Waits for the next items or the end. StreamRestarted: a new run has begun the stream again."""
        try:
            await self._fill(store, waiter)
        except BaseException:
            self.close()  # it may not be dropped soon: a traceback has it
            raise

    async def _fill(self, store: Store, waiter: ResultWaiter) -> None:
        while not self.ready and self.ended is None:
            hints = self._listen(waiter)
            await self._subscribe(waiter)
            if not hints.is_set() and not self._is_behind and not await hints.wait(_POLL):
                hints.check_state = True
            record = await self._read_state(store) if hints.take() else None
            self._add_items(await self._read_notes(store))
            if record is not None and record.state in ENDED and not self._is_behind:
                self._check_epoch(record)
                self.ended = record  # the state was read before the notes, so these were the last
                self.close()

    def look_again(self) -> None:
        """The next `fill` reads at once, without a hint."""
        self.close()

    def close(self) -> None:
        """From any thread."""
        if self._forget is not None:
            self._forget()
        self._hints = None

    def _listen(self, waiter: ResultWaiter) -> ItemHints:
        if self._hints is None or self._waiter is not waiter:  # the client may have been closed and opened again
            self.close()
            self._waiter = waiter
            self._hints = waiter.listen_for_items(self.uuid)
            self._forget = weakref.finalize(self, waiter.forget, self._hints)
            self._forget.atexit = False
        return self._hints

    async def _subscribe(self, waiter: ResultWaiter) -> None:
        now = asyncio.get_running_loop().time()
        is_due = self._subscribed_at is None or now - self._subscribed_at >= _RENEW
        if is_due and NAME.fullmatch(self.uuid):
            await waiter.subscribe(self.uuid)
            self._subscribed_at = now

    async def _read_state(self, store: Store) -> Record:
        (record,) = await store.get((self.uuid,)) if NAME.fullmatch(self.uuid) else (None,)
        if record is None:
            raise TaskNotFound(f"no task {self.uuid}: never added here, or no longer kept")
        return record

    async def _read_notes(self, store: Store) -> Sequence[ItemNote]:
        if self._position == 0:  # all that is there: older epochs are left out
            saved = await read_stream(item_reader(store, self.uuid))
            self._position = saved.after
            self._is_behind = False
            return saved.notes
        page = await store.notes(self.uuid, self._position, PAGE, "item")
        self._is_behind = len(page) == PAGE
        if page:
            self._position = page[-1][0]
        notes = [read_note(note) for _, note in page]
        return [note for note in notes if note.epoch == notes[-1].epoch]

    def _add_items(self, notes: Sequence[ItemNote]) -> None:
        """Those after the cursor, which then is after them."""
        is_first = self.cursor.epoch == 0
        for note in notes:
            if self.cursor.epoch == 0:
                self.cursor = Cursor(note.epoch, 0)
            elif note.epoch != self.cursor.epoch:
                raise StreamRestarted(self.uuid)
            for number, data in enumerate(note.items(), note.first + 1):
                if number > self.cursor.number:
                    self.cursor = Cursor(note.epoch, number)
                    self.ready.append(ReadItem(self.cursor, data))
        if self.ready and is_first and self._hints is not None:
            self._hints.check_state = True  # an end before the first items had no hint that this reader waits for
            self._hints.set()

    def _check_epoch(self, record: Record) -> None:
        """A new run may have begun again and yielded nothing."""
        result = streamed_items(record)
        if result is not None and self.cursor.epoch not in (0, result.epoch):
            raise StreamRestarted(self.uuid)
