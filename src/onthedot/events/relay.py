"""The relay: it sends the events of the outbox to the bus, in order per key."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from math import ceil, inf
from random import Random
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from onthedot.clock.durations import DAY, HOUR, MINUTE
from onthedot.clock.protocol import Clock
from onthedot.events.bus import Bus, BusMessage, BusUnreachable, RecordRefused, TopicPartition
from onthedot.events.bus_connection import BusConnection
from onthedot.events.component_loop import ComponentLoop
from onthedot.events.component_session import ComponentSession
from onthedot.events.held_events import MAX_BATCH, MAX_HELD, MAX_HELD_BYTES, HeldEvents, TopicKey
from onthedot.events.outbox_pauses import OutboxPauses
from onthedot.events.relay_topics import RelayTopics
from onthedot.observability.events import Observer
from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import Limit, OutboxEvent, RelayRequest, RelayResult

_PURGE_INTERVAL = float(MINUTE)
_PURGE_BATCH = 1_000
_REPORT_INTERVAL = float(MINUTE)
_MAX_RATES = 100  # topics in a report
_SILENCE = 5_000.0  # ms without an answer after which the bus counts as unreachable
_HINTS_END = 500.0  # ms without an answer after which hints are not followed: what they announce could not be sent
_PAUSED_POLL = 1_000.0  # ms between two looks whether a pause is over
_LAST_SENDS = 0.5  # seconds that batches have at a stop
_LAST_MARKS = 0.5  # seconds in which the store must take the last marks
_MAX_ERROR = 1_000  # characters

ToMessage: TypeAlias = Callable[[OutboxEvent], BusMessage]


class RelaySettings(Struct, frozen=True):
    """How often a relay looks without a hint, and how long the store keeps what is done."""

    poll: float = 1.0  # seconds
    keep_sent: int = 7 * DAY  # ms
    keep_arrivals: int = HOUR


class _Marks(NamedTuple):
    sent: list[int]
    refused: dict[int, str]
    blocked: set[TopicKey]  # keys of the refused


class Relay(ComponentLoop):
    """Owns some of the buckets and sends their events. At most one batch per partition is in flight.

    It has no fence: what a relay sends after its session was over are copies, and the first copies are in order, since
    every owner of a bucket begins with the first event that is not marked as sent.

    read_limits: for pauses. to_message: an event as a message of the bus.
    """

    name = "relay"

    def __init__(
        self,
        outbox: Outbox,
        session: ComponentSession,
        connection: BusConnection,
        settings: RelaySettings,
        *,
        clock: Clock,
        random: Random,
        observer: Observer,
        read_limits: Callable[[], Awaitable[Sequence[Limit]]],
        to_message: ToMessage,
        polls: bool = True,
    ) -> None:
        """polls: False for a store whose hints are never lost."""
        super().__init__(clock, observer)
        self._outbox = outbox
        self._session = session
        self._connection = connection
        self._bus: Bus = connection.bus
        self._settings = settings
        self._to_message = to_message
        self._polls = polls
        self.held: HeldEvents = HeldEvents()  # for tests
        self._pauses = OutboxPauses(read_limits, clock)
        self._topics = RelayTopics(self._bus, clock, random, observer, self._route, self._drop_topic)
        self._sends: dict[TopicPartition, asyncio.Task[None]] = {}
        self._started: dict[TopicPartition, float] = {}  # ms
        self._answered_at = -inf  # ms; by any partition
        self._marks = _Marks([], {}, set())  # to be written with the next turn
        self._dropped: set[str] = set()  # topics whose events were given back to the outbox since the turn began
        self._buckets: Sequence[int] = ()
        self._is_reported = False
        self._has_rates = False
        self._has_reported_outage = False  # of the bus
        self._sent_in_minute: Counter[str] = Counter()  # by topic, since the last report
        self._reported_at = clock.now()
        self._purged_at = clock.now() - _PURGE_INTERVAL * random.random()  # several relays at different times
        session.on_hint(self._on_hint)

    def recheck(self) -> None:
        self._pauses.expire()
        super().recheck()

    async def _begin(self) -> None:
        await self._connection.open()
        if not self._bus.to_log:
            self._report_start()

    def _report_start(self) -> None:
        """On the store bus with the first event: every app has a relay, and many publish nothing."""
        if not self._is_reported:
            self._is_reported = True
            self._observer.relay_started(self._connection.shown)

    def _on_hint(self) -> None:
        """While the bus is away a publish causes no turn: the next one comes by the poll or by the first answer."""
        if not self._is_bus_away():
            self._wakeup.set()

    def _is_bus_away(self) -> bool:
        """One partition without a leader is no such outage: others have been answered since its batch was sent."""
        if not self._started:
            return self._topics.is_bus_away()
        oldest = min(self._started.values())
        return self._answered_at < oldest and self._clock.now() - oldest >= _HINTS_END

    # -- one turn

    async def _step(self) -> None:
        session = await self._session.ready()
        if self._pauses:
            await self._update_pauses()
        limit = self._limit()
        result = await self._turn(session, limit)
        if not result.alive:
            self.held.drop_waiting()  # others own the buckets now; what is being sent is marked when the bus has it
            await self._session.replace(session)
            return
        self._note_buckets(result.buckets)
        await self._hold(result.events)
        self._start_sends()
        self._check_silence()
        await self._report_if_due()
        has_more = result.more and limit > 0 and self._limit() > 0
        if await self._purge_if_due() or has_more:
            await asyncio.sleep(0)  # other coroutines run first
            return
        await self._sleep(self._time_to_next_turn(), idle=not self.held and not self._has_marks())

    def _limit(self) -> int:
        """How many events may be read."""
        if self._pauses.all or self.held.size >= MAX_HELD_BYTES:
            return 0
        return min(MAX_BATCH, MAX_HELD - len(self.held))

    async def _turn(self, session: str, limit: int) -> RelayResult:
        """Writes the marks and reads on, in one call."""
        request = RelayRequest(
            limit,
            tuple(self.held.seqs),
            sorted(self.held.busy_buckets()),
            list({*self._topics.skipped(), *self.held.full_topics(), *self._pauses.topics}),
        )
        marks = self._marks
        self._marks = _Marks([], {}, set())
        self._dropped.clear()
        try:
            return await self._outbox.relay(session, marks.sent, marks.refused, request, to_log=self._bus.to_log)
        except BaseException:
            newer = self._marks
            self._marks = _Marks(marks.sent + newer.sent, marks.refused | newer.refused, marks.blocked | newer.blocked)
            raise

    def _has_marks(self) -> bool:
        return bool(self._marks.sent or self._marks.refused)

    async def _hold(self, events: Sequence[OutboxEvent]) -> None:
        if not events:
            return
        self._report_start()
        await self._update_pauses()
        closed = self._closed_topics({stored.event.topic for stored in events})
        blocked = self._marks.blocked
        for stored in events:
            event = stored.event
            if event.topic in closed or (blocked and TopicKey(event.topic, event.key) in blocked):
                continue
            self.held.add(stored, self._partition_of(stored))

    def _closed_topics(self, topics: Collection[str]) -> set[str]:
        """Those of which no event is held now; that may have changed during the turn."""
        closed = {topic for topic in self._topics.skipped() if topic not in self.held.unrouted_topics()}
        closed |= self._dropped  # earlier events of a key may be in the outbox again
        return closed | {topic for topic in topics if self._pauses.covers(topic)}

    def _partition_of(self, stored: OutboxEvent) -> int | None:
        """By the key of the message, as other clients choose it; that of a dead letter may be no text, or missing."""
        event = stored.event
        key = event.key.encode()
        if event.raw is not None and not self._bus.to_log:
            with suppress(ValueError):  # it is refused when its batch is encoded
                key = self._to_message(stored).key or key
        return self._topics.partition_of(event.topic, key)

    async def _update_pauses(self) -> None:
        await self._pauses.update()
        for topic in self._pauses.topics:
            self.held.drop_topic(topic)
        if self._pauses.all:
            self.held.drop_waiting()

    def _route(self, topic: str) -> None:
        """The number of partitions of a topic is known."""
        for stored in self.held.take_unrouted(topic):
            self.held.add(stored, self._partition_of(stored))
        self._start_sends()
        self._wakeup.set()  # further events of it can be read

    def _drop_topic(self, topic: str) -> None:
        """The outbox keeps its events until the topic is available."""
        self.held.drop_topic(topic)
        self._dropped.add(topic)
        self._wakeup.set()

    def _note_buckets(self, buckets: Sequence[int]) -> None:
        if buckets != self._buckets:
            self._buckets = buckets
            self._observer.buckets_changed(buckets)

    def _time_to_next_turn(self) -> float | None:
        """ms; None: only a hint or an answer of the bus is waited for."""
        waits = [self._topics.next_retry()]
        if self._polls or self._sends:
            waits.append(self._settings.poll * 1000)
        if self._pauses:
            waits.append(_PAUSED_POLL)
        return min((wait for wait in waits if wait is not None), default=None)

    # -- sending

    def _start_sends(self) -> None:
        for partition in self.held.ready_partitions():
            if not self._stopping:
                batch = self.held.start_batch(partition)
                self._started[partition] = self._clock.now()
                self._sends[partition] = asyncio.create_task(self._send(partition, batch))

    async def _send(self, partition: TopicPartition, batch: Sequence[OutboxEvent]) -> None:
        """Nothing of a batch is lost: each event is marked, sent again, or given back to the outbox."""
        try:
            await self._encode_and_send(partition, batch)
        except RecordRefused as error:
            self._answered_at = self._clock.now()
            self._on_refused(partition, batch, error)
        except Exception as error:  # noqa: BLE001 - reported; the topic is tried again later
            self.held.end_batch(partition, batch, ())
            self._topics.on_failed(partition.topic, error)
        except asyncio.CancelledError:
            self.held.end_batch(partition, batch, ())
            raise
        else:
            self._answered_at = self._clock.now()
            self._on_sent(partition, batch)
        finally:
            del self._sends[partition]
            del self._started[partition]
        self._start_sends()
        self._wakeup.set()

    async def _encode_and_send(self, partition: TopicPartition, batch: Sequence[OutboxEvent]) -> None:
        messages: list[BusMessage] = []
        refused: RecordRefused | None = None
        for index, stored in enumerate(batch):  # also for the store bus: its readers must be able to encode them
            try:
                messages.append(self._to_message(stored))
            except Exception as error:  # noqa: BLE001 - written by another program; reported as refused
                refused = RecordRefused(index, f"it cannot be encoded: {error}")
                break
        if messages:
            await self._bus.send(partition.topic, partition.partition, messages)
        if refused is not None:
            raise refused

    def _on_sent(self, partition: TopicPartition, batch: Sequence[OutboxEvent]) -> None:
        self._marks.sent.extend(stored.seq for stored in batch)
        self.held.end_batch(partition, batch, ())
        self._report_sent(partition, len(batch))

    def _on_refused(self, partition: TopicPartition, batch: Sequence[OutboxEvent], error: RecordRefused) -> None:
        """The bus has what is before the refused event. The rest is sent next, without the key of that event."""
        refused = batch[error.index]
        reason = str(error)[:_MAX_ERROR]
        blocked = TopicKey(partition.topic, refused.event.key)
        rest = batch[error.index + 1 :]
        again = [stored for stored in rest if stored.event.key != blocked.key]
        held_back = [stored for stored in rest if stored.event.key == blocked.key]
        sent = batch[: error.index]
        self._marks.sent.extend(stored.seq for stored in sent)
        self._marks.refused[refused.seq] = reason
        self._marks.blocked.add(blocked)
        self.held.end_batch(partition, [*sent, refused, *held_back], again)
        self.held.drop_key(blocked)
        self._report_sent(partition, len(sent))
        self._count_events(1)
        self._observer.event_refused(refused, reason)

    def _report_sent(self, partition: TopicPartition, count: int) -> None:
        self._count_events(count)
        self._sent_in_minute[partition.topic] += count
        self._topics.on_sent(partition.topic)
        self._observer.events_sent(partition.topic, count, self._clock.now() - self._started[partition])
        if self._has_reported_outage:
            self._has_reported_outage = False
            self._observer.bus_recovered("sending")

    def _check_silence(self) -> None:
        """While no broker answers, the bus waits, so a batch that takes long is the only sign of it."""
        now = self._clock.now()
        silence = now - min(self._started.values(), default=now)
        if silence >= _SILENCE:
            self._has_reported_outage = True
            error = BusUnreachable(f"no answer for {silence / 1000:.0f} s, and {len(self.held)} events wait here")
            self._observer.bus_failed("sending", error)

    # -- figures for operators

    async def _report_if_due(self) -> None:
        """Once per minute, in the description of the session; nothing while nothing is sent."""
        now = self._clock.now()
        minutes = (now - self._reported_at) / _REPORT_INTERVAL
        if minutes < 1:
            return
        rates = {topic: ceil(count / minutes) for topic, count in self._sent_in_minute.most_common(_MAX_RATES)}
        self._reported_at = now
        self._sent_in_minute.clear()
        if rates or self._has_rates:
            await self._session.report({"sent_per_minute": rates, "figures_at": int(now)})
        self._has_rates = bool(rates)

    # -- retention

    async def _purge_if_due(self) -> bool:
        """True: there is more to delete."""
        now = self._clock.now()
        if now - self._purged_at < _PURGE_INTERVAL:
            return False
        deleted = await self._outbox.purge_events(
            _PURGE_BATCH, keep_sent=self._settings.keep_sent, keep_arrivals=self._settings.keep_arrivals
        )
        if deleted >= _PURGE_BATCH:
            return True
        self._purged_at = now
        return False

    # -- stop

    async def _finish(self) -> None:
        sends = list(self._sends.values())
        if sends:
            await asyncio.wait(sends, timeout=_LAST_SENDS)
            for send in sends:
                send.cancel()
            await asyncio.wait(sends)
        await self._topics.close()
        await self._write_last_marks()
        await self._session.close()

    async def _write_last_marks(self) -> None:
        """An event that is not marked is sent again by the next owner of its bucket."""
        if not self._has_marks():
            return
        marks = self._marks
        try:
            async with asyncio.timeout(_LAST_MARKS):
                await self._outbox.relay(self._session.id, marks.sent, marks.refused, None, to_log=self._bus.to_log)
        except Exception as error:  # noqa: BLE001 - reported
            self._observer.store_failed("marking sent events", error)
