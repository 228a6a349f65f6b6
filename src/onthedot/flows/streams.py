"""The stream of one run: what its generator yields is packed into notes, which are written while it goes on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from onthedot.codec.body import EMPTY_RESULT, ResultNotEncodable
from onthedot.engine.note_batcher import NoteBatcher
from onthedot.engine.repeated_calls import RepeatedCalls
from onthedot.engine.suspension import Suspension
from onthedot.errors import Reject, TaskCancelled
from onthedot.model.context import RunState
from onthedot.model.streams import MAX_NOTE, MAX_STREAM, StreamedItems, note_data, note_name
from onthedot.observability.events import Observer
from onthedot.operations.streams import ReadItems, SavedStream, item_reader, read_stream
from onthedot.stores.contract import Note, Requeued, Store

_MAX_UNSAVED = 1000  # items
_MAX_UNSAVED_BYTES = 1 << 20
_PAUSE = 0.005  # seconds between two chances for others: a generator may yield without awaiting anything


class StreamRuns:
    """Makes the stream of a run. Belongs to the event loop of a worker."""

    def __init__(self, store: Store, observer: Observer) -> None:
        self._store = store
        self._calls = RepeatedCalls(observer, "saving and reading items")
        self._notes = NoteBatcher(store, self._calls)

    def __call__(self, run: RunState) -> StreamRun:
        read = item_reader(self._store, run.record.uuid)
        return StreamRun(run, self._notes, lambda after: self._calls.run(lambda: read(after)))


class StreamRun:
    """Saves the items of one run. Implements the protocol of `model.streams`.

    There is no timer: while nothing is being written, an item is written at once; those that are yielded meanwhile go
    with the next write.
    """

    def __init__(self, run: RunState, notes: NoteBatcher, read: ReadItems) -> None:
        self._run = run
        self._notes = notes
        self._read = read
        self._lease = run.lease
        self._before = SavedStream(0, [], 0, 0)  # of earlier runs, until the first item
        self._continues = False
        self._epoch = 0  # 0: no item yet
        self._yielded = 0  # items of the epoch
        self._saved = 0
        self._unwritten: deque[bytes] = deque()
        self._unsaved_bytes = 0  # of items that are being written, too
        self._size = 0  # of all notes of the task
        self._writer: asyncio.Task[None] | None = None
        self._written = asyncio.Event()
        self._error: BaseException | None = None
        self._loop_time = asyncio.get_running_loop().time
        self._last_pause = self._loop_time()

    # -- for the code of the task

    @property
    def streamed(self) -> int:
        """How many items are saved. Read before the first one is yielded, it continues the stream."""
        if self._epoch:
            return self._saved
        self._continues = True
        return self._before.length

    async def items(self) -> Sequence[bytes]:
        """The saved items, in their stored form. It continues the stream, like `streamed`."""
        if self._epoch:
            await self._flush()
            saved = await read_stream(self._read)
            return saved.items() if saved.epoch == self._epoch else ()
        self._continues = True
        return self._before.items()

    # -- writing

    async def save(self, items: AsyncGenerator[object, None], encode: Callable[[object], bytes]) -> StreamedItems:
        """Saves what the generator yields, to its end. Nothing is unsaved when this returns or raises.

        Only a run that is cancelled leaves items behind: those that it yielded during the last write.
        """
        try:
            async with aclosing(items):
                self._before = await read_stream(self._read)
                self._size = self._before.size
                async for item in items:
                    await self._put(self._encoded(item, encode))
        except asyncio.CancelledError:
            if self._writer is not None:
                self._writer.cancel()
            raise
        except BaseException as error:
            if error is not self._error:
                await self._flush()
            raise
        await self._flush()
        self._begin()
        return StreamedItems(self._epoch, self._saved)

    def _encoded(self, item: object, encode: Callable[[object], bytes]) -> bytes:
        """An item that cannot be saved ends the task: a retry would yield it again."""
        try:
            return encode(item) or EMPTY_RESULT
        except ResultNotEncodable as error:
            raise Reject(f"item {self._yielded + 1} of the stream: {error}") from error

    def _begin(self) -> None:
        if self._epoch:
            return
        before = self._before
        if self._continues and before.epoch:
            self._epoch = before.epoch
            self._yielded = self._saved = before.length
        else:
            self._epoch = self._lease.fence
        self._before = before._replace(notes=[])

    async def _put(self, item: bytes) -> None:
        self._check()  # an item after one that was not saved would take its place
        self._begin()
        size = len(item) + 1
        if self._size + size > MAX_STREAM:
            raise Reject(
                f"item {self._yielded + 1} of the stream: the saved items of the task take more than "
                f"{MAX_STREAM >> 20} MiB; keep large data elsewhere and yield where it is"
            )
        self._size += size
        self._yielded += 1
        self._unwritten.append(item)
        self._unsaved_bytes += size
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all())
        now = self._loop_time()
        if now - self._last_pause > _PAUSE:
            self._last_pause = now
            await asyncio.sleep(0)
        while self._error is None and self._is_full():
            await self._next_write()
        self._check()

    def _is_full(self) -> bool:
        return self._yielded - self._saved >= _MAX_UNSAVED or self._unsaved_bytes >= _MAX_UNSAVED_BYTES

    async def _flush(self) -> None:
        while self._error is None and self._saved < self._yielded:
            await self._next_write()
        self._check()

    async def _next_write(self) -> None:
        self._written.clear()
        await self._written.wait()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _write_all(self) -> None:
        try:
            while self._unwritten:
                items = self._take()
                await self._write(note_data(items))
                self._saved += len(items)
                self._unsaved_bytes -= sum(map(len, items)) + len(items)
                self._written.set()
        except BaseException as error:  # noqa: BLE001 - the run raises it
            self._error = error
        finally:
            self._writer = None
            self._written.set()

    def _take(self) -> list[bytes]:
        """As many items as one note takes."""
        items: list[bytes] = []
        left = MAX_NOTE - 1
        while self._unwritten and len(self._unwritten[0]) < left:
            item = self._unwritten.popleft()
            left -= len(item) + 1
            items.append(item)
        return items

    async def _write(self, data: bytes) -> None:
        name = note_name(self._epoch, self._saved)
        while True:
            lease = self._run.lease
            if lease != self._lease:
                await self._check_earlier()
                self._lease = lease
            if await self._notes.write(Note(lease, "item", name, data)):
                return
            if lease == self._run.lease:
                raise TaskCancelled("its lease is lost: another worker has it by now", self._run.record.uuid)

    async def _check_earlier(self) -> None:
        """The store has lost its last writes and leased the running task again. If items are lost, a new run begins."""
        stored = await read_stream(self._read)
        if self._saved and (stored.epoch != self._epoch or stored.length < self._saved):
            raise Suspension(Requeued(self._run.lease, 0, counted=False))
