"""A member of a group that reads the log of the store."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from math import inf
from operator import attrgetter

from msgspec import Struct

from onthedot.clock.protocol import Clock
from onthedot.clock.wakeup import WakeUp
from onthedot.events.bus import BusRecord, Revoked, TopicPartition
from onthedot.events.component_session import SessionPool
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import BUCKETS, MAX_READ_BYTES, OutboxEvent

_PAGE = 800  # events of a read; each owned bucket may fill an equal part
_POLL = 1_000.0  # ms between two looks at the log while hints do not come through
_POLL_WITH_HINTS = 5_000.0  # ms; a hint may be lost
_MAX_BUFFERED = 1_000  # records of a bucket that wait here; it is not read beyond that
_MAX_BUFFERED_BYTES = 2 * MAX_READ_BYTES // BUCKETS  # of a bucket, as well
_MAX_SKIPPED = 1_000  # positions of other topics after which the position is committed
_SKIPPED_INTERVAL = 5_000.0  # ms after which it is committed however few they are: an idle group shows no lag
_END = 2**62  # a position after all others: nothing of the bucket is read


_bucket_of = attrgetter("event.bucket")
_place_of = attrgetter("topic", "partition")


class _Place(Struct, frozen=True, gc=False):
    position: int
    topic: str


class _Bucket:
    """The part of the log of a bucket that was read, and what of it is done."""

    def __init__(self) -> None:
        self.read_to = 0
        self.committed = 0  # by this member
        self.buffered = 0  # records that were not delivered
        self.size = 0  # bytes of these
        self.has_more: bool = False  # the last read of its log may not have reached the end
        self.open: deque[_Place] = deque()  # read, from the first one that is not committed, by position
        self._offsets: dict[str, int] = {}  # by topic, what was committed

    @property
    def done_to(self) -> int:
        """Up to this position, all that was read is done."""
        if self.open:
            return self.open[0].position - 1
        return self.read_to

    @property
    def is_full(self) -> bool:
        return self.buffered >= _MAX_BUFFERED or self.size >= _MAX_BUFFERED_BYTES

    def commit(self, offsets: Mapping[str, int]) -> None:
        """offsets: by topic, the position to read next."""
        self._offsets.update(offsets)
        while self.open and self.open[0].position < self._offsets.get(self.open[0].topic, 0):
            self.open.popleft()


class StoreSubscription:
    """Reads the buckets that its session owns in its group; records that are paused wait here.

    The position of a bucket is committed up to the first record of any topic that is not done, since all topics of a
    bucket share its log.
    """

    def __init__(
        self,
        outbox: Outbox,
        sessions: SessionPool,
        group: str,
        topics: Sequence[str],
        on_revoked: Revoked,
        clock: Clock,
        to_record: Callable[[OutboxEvent], BusRecord],
        *,
        polls: bool,
        on_closed: Callable[[StoreSubscription], object],
    ) -> None:
        self._outbox = outbox
        self._sessions = sessions
        self._group = group
        self._topics = topics
        self._on_revoked = on_revoked
        self._clock = clock
        self._to_record = to_record
        self._polls = polls
        self._on_closed = on_closed
        self._session = sessions.join(group)
        self._joined = ""  # the session that owns the buckets
        self._buckets: dict[int, _Bucket] = {}
        self._buffers: dict[TopicPartition, deque[BusRecord]] = {}
        self._paused: set[TopicPartition] = set()
        self._is_closed = False
        self._wakeup = WakeUp(clock)
        self._has_hint = True  # it has not looked yet
        self._next_look = 0.0  # ms, without a hint
        self._skipped_at = clock.now()  # ms, the last commit of other topics
        self._ignore_hints = self._session.on_hint(self._on_hint)

    @property
    def buffered(self) -> int:
        """Records that were read and wait here."""
        return sum(bucket.buffered for bucket in self._buckets.values())

    @property
    def _is_behind(self) -> bool:
        """Whether the log has more than was read, of a bucket that has not too many records here."""
        return any(bucket.has_more and not bucket.is_full for bucket in self._buckets.values())

    # -- reading

    async def read(self, limit: int, timeout: float) -> Sequence[BusRecord]:
        """The timeout goes by the event loop and not by the clock: with a manual one it would be an alarm."""
        deadline = asyncio.get_running_loop().time() + timeout
        while not self._is_closed:
            self._wakeup.clear()  # clear, then look: no hint is lost
            await self._keep_membership()
            records = self._take(limit)
            if not records and self._may_have_more():
                while not await self._fetch():
                    await self._keep_membership()
                records = self._take(limit)
            left = deadline - asyncio.get_running_loop().time()
            if records or left <= 0:
                return records
            if not self._is_behind:
                await self._wait_for_hint(left)
        return ()

    def _may_have_more(self) -> bool:
        """Whether a look at the log could find something: without a hint, it is looked at now and then."""
        if not self._polls:
            return True
        return self._has_hint or self._is_behind or self._clock.now() >= self._next_look

    async def _wait_for_hint(self, seconds: float) -> None:
        """Until a hint, or the time for a look without one; at most so many seconds."""
        timer = None
        if seconds != inf:
            timer = asyncio.get_running_loop().call_later(seconds, self._wakeup.set)
        try:
            await self._wakeup.wait(max(0.0, self._next_look - self._clock.now()) if self._polls else None)
        finally:
            if timer is not None:
                timer.cancel()

    def _on_hint(self) -> None:
        self._has_hint = True
        self._wakeup.set()

    async def _keep_membership(self) -> None:
        session = await self._session.ready()
        if session != self._joined:
            await self._revoke(list(self._buckets))
            self._joined = session
            self._has_hint = True

    async def _fetch(self) -> bool:
        """False: the session is over, and another one takes its place."""
        self._has_hint = False
        self._next_look = 0.0  # if it fails, at once
        page = await self._outbox.read_log(self._group, self._joined, self._topics, self._positions(), _PAGE)
        if not page.alive:
            await self._session.replace(self._joined)
            return False
        self._next_look = self._clock.now() + (_POLL_WITH_HINTS if self._session.is_listening else _POLL)
        lost = [bucket for bucket in self._buckets if bucket not in page.buckets]
        await self._revoke(lost)
        members = max(1, len(page.buckets))
        part = max(1, _PAGE // members)  # that each bucket may have of a page
        counts: Counter[int] = Counter()
        sizes: Counter[int] = Counter()
        for number, some in groupby(page.events, key=_bucket_of):
            events = list(some)
            counts[number] += len(events)
            sizes[number] += sum(stored.event.size for stored in events)
        for bucket, position in page.buckets.items():
            known = self._buckets.setdefault(bucket, _Bucket())
            if position < _END:  # otherwise it was left out
                is_cut = counts[bucket] >= part or sizes[bucket] >= MAX_READ_BYTES // members
                known.has_more = is_cut or position - known.read_to >= _MAX_SKIPPED
                known.read_to = position
        for (topic, number), records in groupby(map(self._to_record, page.events), key=_place_of):
            self._buffer(TopicPartition(topic, number), list(records))
        await self._commit_skipped()
        if lost:
            return await self._fetch()  # others get these buckets when they are not named any more
        return True

    def _positions(self) -> dict[int, int]:
        return {number: _END if bucket.is_full else bucket.read_to for number, bucket in self._buckets.items()}

    def _buffer(self, partition: TopicPartition, records: Sequence[BusRecord]) -> None:
        bucket = self._buckets[partition.partition]
        bucket.open.extend([_Place(record.offset, record.topic) for record in records])
        bucket.buffered += len(records)
        bucket.size += sum(len(record.message.value) for record in records)
        self._buffers.setdefault(partition, deque()).extend(records)

    def _take(self, limit: int) -> list[BusRecord]:
        """An equal part of each partition, the one that was taken from last at the end."""
        records: list[BusRecord] = []
        while len(records) < limit and (partitions := [each for each in self._buffers if each not in self._paused]):
            part = max(1, (limit - len(records)) // len(partitions))
            for partition in partitions[: limit - len(records)]:
                buffer = self._buffers.pop(partition)
                taken = [buffer.popleft() for _ in range(min(part, len(buffer)))]
                bucket = self._buckets[partition.partition]
                bucket.buffered -= len(taken)
                bucket.size -= sum(len(record.message.value) for record in taken)
                records += taken
                if buffer:
                    self._buffers[partition] = buffer
        return records

    # -- membership

    async def _revoke(self, buckets: Collection[int]) -> None:
        if not buckets:
            return
        partitions = [TopicPartition(topic, bucket) for topic in self._topics for bucket in buckets]
        await self._on_revoked(partitions)  # first: what is done can still be committed, if the session lives
        for partition in partitions:
            self._buffers.pop(partition, None)
            self._paused.discard(partition)
        for bucket in buckets:
            del self._buckets[bucket]

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._paused.difference_update(partitions)
        self._wakeup.set()

    # -- positions

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        by_bucket: dict[int, dict[str, int]] = {}
        for partition, offset in offsets.items():
            if partition.partition in self._buckets:
                by_bucket.setdefault(partition.partition, {})[partition.topic] = offset
        for number, positions in by_bucket.items():
            self._buckets[number].commit(positions)
        await self._write(by_bucket)

    async def _commit_skipped(self) -> None:
        """Other topics of the log would be read again by the next member, and count as lag."""
        least = _MAX_SKIPPED
        if self._clock.now() - self._skipped_at >= _SKIPPED_INTERVAL:
            self._skipped_at = self._clock.now()
            least = 1
        skipped = [
            number
            for number, bucket in self._buckets.items()
            if not bucket.open and bucket.read_to - bucket.committed >= least
        ]
        await self._write(skipped)

    async def _write(self, buckets: Iterable[int]) -> None:
        done = {number: self._buckets[number].done_to for number in buckets}
        positions = {
            number: position for number, position in done.items() if position > self._buckets[number].committed
        }
        if not positions:
            return
        await self._outbox.commit_positions(self._group, self._joined, positions)
        for number, position in positions.items():
            if number in self._buckets:
                self._buckets[number].committed = position

    async def lag(self) -> Mapping[TopicPartition, int]:
        lag = {TopicPartition(topic, bucket): 0 for topic in self._topics for bucket in self._buckets}
        for unread in await self._outbox.unread(self._group, self._topics):
            partition = TopicPartition(unread.topic, unread.bucket)
            if partition in lag:
                lag[partition] = unread.count
        return lag

    async def close(self) -> None:
        """Leaves the group. Another member reads again the records that are not committed."""
        if self._is_closed:
            return
        self._is_closed = True
        self._ignore_hints()
        self._wakeup.set()
        await self._sessions.leave(self._session, self._group)
        self._on_closed(self)
