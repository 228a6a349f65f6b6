"""The one reader of the store's change feed in a process, for any number of listeners."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from math import inf
from typing import NamedTuple

from onthedot.clock.epoch import from_ms
from onthedot.clock.protocol import Clock
from onthedot.clock.wakeup import WakeUp
from onthedot.errors import StoreError
from onthedot.operations.audit import AuditOperations
from onthedot.operations.bulk_progress import BulkProgress
from onthedot.operations.feed_listener import FeedListener, Watch
from onthedot.operations.feed_state import FeedState
from onthedot.operations.task_queries import TaskQueries
from onthedot.operations.throughput import Throughput
from onthedot.stores.contract import ChangePage, Store, Transition

ENTRIES = 500  # calls per read
RESOLVED = 100  # transitions per read that carry a uuid
MAX_REPLAYED = 1_000  # transitions
SECONDS = 120  # of rates and of history
FAST_PAUSE = 100.0  # ms between two reads while a listener needs transitions
SLOW_PAUSE = 250.0  # and while none does
MAX_PAUSE = 2_000.0
LOAD = 50  # a pause lasts this many times as long as the read before it
MAX_IDLE = 30_000.0  # ms without listeners after which a replay is refused
LOOK_BACK = 3_000.0  # ms: a listener may have read the store so long before it listens
EVERYTHING = Watch()


class _Joining(NamedTuple):
    """The state of a listener that joins."""

    last_id: str
    has_read: bool


class _Published(NamedTuple):
    """A page that was published, for listeners that come back."""

    before: str  # the cursor
    since: float  # ms: when the cursor was reached
    transitions: list[Transition]
    more: int  # transitions that carry no uuid


class _Outage(NamedTuple):
    """The data of a message of the kind `store`."""

    unavailable_since: datetime | None
    error: str


class ChangeFeed:
    """Reads the store while there are listeners, and sends each what it watches.

    All listeners share the reads: 50 cost as much as one. Between two reads the feed pauses for 100 ms (250 ms if no
    listener needs transitions) or for 50 times the duration of the last read, at most 2 s.

    Example:
        ```python
        listener = operations.feed.listen(Watch(uuids=frozenset({uuid})), last_id)
        try:
            async for message in listener:
                await send(message.kind, message.data, message.id)
        finally:
            listener.close()
        ```
    """

    def __init__(self, store: Store, tasks: TaskQueries, audit: AuditOperations, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._epoch = secrets.token_hex(4)
        self._cursor = ""
        self._read_at = -inf
        self._cursor_at = -inf  # when the cursor was reached
        self._published: deque[_Published] = deque()
        self._listeners: dict[FeedListener, None] = {}
        self._joining: dict[FeedListener, _Joining] = {}  # until the feed has caught up
        self._reading = asyncio.Lock()
        self._wakeup: WakeUp | None = None
        self._task: asyncio.Task[None] | None = None
        self._outage: _Outage | None = None
        self._state = FeedState(store, tasks, BulkProgress(audit, clock), clock)
        self.throughput: Throughput = Throughput(clock.now(), SECONDS)
        """Rates per source, and the history of the last 120 s as far as the feed was read."""

    # -- listeners

    def listen(self, watch: Watch = EVERYTHING, last_id: str = "", *, has_read: bool = False) -> FeedListener:
        """Begin to listen, on this event loop. The caller closes the listener.

        Args:
            watch: What to send.
            last_id: The id of the last message that an earlier listener of this feed got. Transitions since then are
                sent at first, at most 1,000, and an `invalidate` for what has changed; if they are not known, a
                `reset`. "": from now on.
            has_read: The caller has read the store already. If something may have changed in the 3 s before now, the
                listener gets a `reset`.
        """
        listener = FeedListener(watch, self._leave)
        if self._outage is not None:
            listener.put("store", self._outage._asdict())
        joining = _Joining(last_id, has_read)
        if self._task is None or self._joining:
            self._joining[listener] = joining
        else:
            self._join(listener, joining)
        if self._task is None:
            self._start(asyncio.get_running_loop())
        return listener

    def publish(self, kind: str, data: object) -> None:
        """Send a message to all listeners."""
        for listener in self._everyone():
            listener.put(kind, data)

    def recheck(self) -> None:
        """Read limits, schedules, workers, the outbox and bulk actions again, at once: this process has changed one."""
        self._state.recheck()
        if self._wakeup is not None:
            self._wakeup.set()

    async def close(self) -> None:
        """End all listeners, and the reading."""
        for listener in list(self._everyone()):
            listener.close()
        if self._task is not None:
            task = self._task
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @property
    def listener_count(self) -> int:
        """The number of listeners."""
        return len(self._listeners) + len(self._joining)

    @property
    def is_reading(self) -> bool:
        """Whether the feed reads the store: only while it has listeners."""
        return self._task is not None

    def _everyone(self) -> Iterable[FeedListener]:
        return (*self._listeners, *self._joining)

    def _leave(self, listener: FeedListener) -> None:
        self._listeners.pop(listener, None)
        self._joining.pop(listener, None)
        if not self.listener_count and self._wakeup is not None:
            self._wakeup.set()

    def _join(self, listener: FeedListener, joining: _Joining) -> None:
        self._listeners[listener] = None
        if joining.last_id:
            self._replay(listener, joining.last_id)
        elif joining.has_read and self._clock.now() - max(self._cursor_at, self._state.changed_at) <= LOOK_BACK:
            listener.put("reset", None)
        listener.advance(self._position)
        self._state.greet(listener)

    def _replay(self, listener: FeedListener, last_id: str) -> None:
        if last_id == self._position:
            self._state.invalidate(listener, self._cursor_at)
            return
        epoch, _, cursor = last_id.partition(".")
        cursors = [each.before for each in self._published]
        if epoch != self._epoch or cursor not in cursors:
            listener.reset()
            return
        missed = list(self._published)[cursors.index(cursor) :]
        self._state.invalidate(listener, missed[0].since)
        for each in missed:
            listener.put_transitions(each.transitions, each.more)
            self._state.note((listener,), each.transitions, is_complete=not each.more)

    @property
    def _position(self) -> str:
        return f"{self._epoch}.{self._cursor}"

    # -- reading

    async def read(self, resolve: int = RESOLVED) -> bool:
        """Read one page and publish it; True if there may be more. Listeners cause this; a caller need not.

        Args:
            resolve: How many of its newest transitions are resolved.
        """
        async with self._reading:
            if not self._cursor:
                self._cursor = (await self._store.changes("", 1)).cursor
                self._read_at = self._cursor_at = self._clock.now()
                return False
            page = await self._store.changes(self._cursor, ENTRIES, resolve)
            self._read_at = self._clock.now()
            self._take(page)
            return len(page.entries) == ENTRIES

    def _take(self, page: ChangePage) -> None:
        number = self.throughput.fold(page.entries, self._clock.now())
        transitions = [transition for entry in page.entries for transition in entry.transitions]
        more = number - len(transitions)
        if page.gap:
            self._published.clear()
        elif number:
            self._published.append(_Published(self._cursor, self._cursor_at, transitions, more))
            while sum(len(each.transitions) for each in self._published) > MAX_REPLAYED:
                self._published.popleft()
        self._cursor = page.cursor
        if page.gap or number:
            self._cursor_at = self._clock.now()
        for listener in self._listeners:
            if page.gap:
                listener.reset()
            else:
                listener.put_transitions(transitions, more)
            listener.advance(self._position)
        self._state.note(self._listeners, transitions, is_complete=not more and not page.gap)
        self._state.note_failures(page.entries)

    async def _catch_up(self) -> None:
        """Read what has happened without listeners; then let those join that wait."""
        if self._clock.now() - self._read_at > MAX_IDLE:
            self._cursor = ""
            self._published.clear()
            self._state.forget()
        reads = 0
        while await self.read(MAX_REPLAYED) and reads < MAX_REPLAYED // ENTRIES:
            reads += 1
        if not self._state.is_known:  # what changes from here on is noticed
            await self._state.update((), self.throughput)
        for listener, joining in self._joining.items():
            self._join(listener, joining)
        self._joining.clear()

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._task = loop.create_task(self._run(), name="onthedot-change-feed")
        self._task.add_done_callback(self._end)

    async def _run(self) -> None:
        self._wakeup = WakeUp(self._clock)
        while self.listener_count:
            self._wakeup.clear()
            began = self._clock.now()
            duration = 0.0
            try:
                if self._joining:
                    await self._catch_up()
                else:
                    await self.read()
                duration = self._clock.now() - began
                await self._state.update(self._listeners, self.throughput)
                self._set_available()
            except StoreError as error:
                self._set_unavailable(error)
            await self._wakeup.wait(self._pause(duration))

    def _pause(self, duration: float) -> float:
        is_fast = any(listener.watch.needs_transitions for listener in self._everyone())
        shortest = FAST_PAUSE if is_fast else SLOW_PAUSE
        if self._outage is not None:
            return MAX_PAUSE
        return min(MAX_PAUSE, max(shortest, LOAD * duration))

    def _set_unavailable(self, error: StoreError) -> None:
        if self._outage is None:
            self._outage = _Outage(from_ms(self._clock.now()), str(error))
            self.publish("store", self._outage._asdict())

    def _set_available(self) -> None:
        if self._outage is not None:
            self._outage = None
            self.publish("store", _Outage(None, "")._asdict())

    def _end(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._wakeup = None
        self._outage = None
        if not task.cancelled() and (error := task.exception()) is not None:
            for listener in self._everyone():
                listener.fail(error)
        elif self.listener_count:  # one came while it ended
            self._start(task.get_loop())
