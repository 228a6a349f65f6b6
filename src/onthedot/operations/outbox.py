"""The outbox as an operator sees it: what is unsent and why, who relays, failed events, pauses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from onthedot.clock.epoch import from_ms, from_optional_ms
from onthedot.clock.protocol import Clock
from onthedot.errors import StoreRefused
from onthedot.model.outbox_names import OUTBOX_LIMIT, pause_name, paused_topic
from onthedot.model.stored_keys import stored_text
from onthedot.operations.audit import Recorded, list_names
from onthedot.operations.operator_limits import OperatorLimits, not_paused, paused_now
from onthedot.operations.sources import Pause
from onthedot.operations.store_state import StoreState
from onthedot.operations.workers import ComponentInfo, component_infos
from onthedot.stores.capabilities import Outbox, capability, find_capability
from onthedot.stores.contract import (
    RELAYS,
    Arrival,
    HandleRecord,
    HandleStatus,
    Limit,
    OutboxEvent,
    OutboxState,
    Store,
)

MAX_LISTED = 1000
_ALL_TOPICS = "all topics"
_FRESH = 120_000  # ms for which the figures of a relay are shown
_MS = timedelta(milliseconds=1)
_PURGE = "purge"  # no session: it owns no buckets
_KEEP_ARRIVALS = 3_600_000  # ms, of arrivals without a handle


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """The outbox of one topic. blocked_keys: keys whose events wait for a failed one; error: of the newest failed."""

    topic: str
    pending: int = 0
    oldest: datetime | None = None  # when the oldest pending event occurred
    sent_per_minute: int = 0
    failed: int = 0
    blocked_keys: int = 0
    error: str = ""
    paused: Pause | None = None


@dataclass(frozen=True, slots=True)
class RelayInfo:
    """A live relay. buckets: those that it owns, of 16."""

    id: str
    host: str = ""
    pid: int = 0
    started: datetime | None = None
    bus: str = ""
    buckets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group that reads the log, where the store is the bus. lag: events that it has not committed."""

    group: str
    lag: int
    members: int


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """All of an outbox. paused: the pause of all topics; handles: resume handles by status."""

    topics: tuple[TopicInfo, ...] = ()
    relays: tuple[RelayInfo, ...] = ()
    groups: tuple[GroupInfo, ...] = ()
    paused: Pause | None = None
    handles: Mapping[HandleStatus, int] = field(default_factory=dict[HandleStatus, int])

    @property
    def pending(self) -> int:
        """Unsent events that are not failed."""
        return sum(each.pending for each in self.topics)

    @property
    def failed(self) -> int:
        """Events that the bus refuses."""
        return sum(each.failed for each in self.topics)

    @property
    def open_handles(self) -> int:
        """Resume handles whose waiter has not been woken."""
        return self.handles.get("pending", 0) + self.handles.get("complete", 0)


@dataclass(frozen=True, slots=True)
class EventInfo:
    """An event in the outbox, without its payload. number: its place in the order of publishing."""

    id: str
    number: int
    topic: str
    key: str
    type: str
    status: str
    occurred_at: datetime
    sent_at: datetime | None = None
    aggregate_id: str = ""
    correlation_id: str | None = None
    attempts: int = 0  # sends that the bus has refused
    error: str = ""


@dataclass(frozen=True, slots=True)
class HandleInfo:
    """A resume handle, and the events that have come for its correlation id. received: how many of these it counts."""

    handle: HandleRecord
    arrivals: tuple[Arrival, ...]

    @property
    def received(self) -> int:
        types = [each.type for each in self.arrivals]
        return sum(min(number, sum(types.count(name) for name in set(names))) for names, number in self.handle.expected)


@dataclass(frozen=True, slots=True)
class PurgeInfo:
    """The figures of a purge: events that were marked as sent, and rows that were deleted, with those of handles."""

    marked: int
    deleted: int


class OutboxOperations(Recorded):
    """Reads and changes the outbox of an app. A store without one is refused, except by `find_status`."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._limits = OperatorLimits(store)
        self._clock = clock

    @property
    def is_available(self) -> bool:
        """Whether the store has an outbox."""
        return find_capability(self._store, Outbox) is not None

    async def status(self) -> OutboxStatus:
        """Return what is unsent by topic, the relays and their buckets, and the groups of the store bus."""
        return await self._status(self._outbox("the outbox"))

    async def find_status(self, read: StoreState | None = None) -> OutboxStatus | None:
        """Return the status; None: the store has no outbox. read: the state of the store, if it has just been read."""
        outbox = find_capability(self._store, Outbox)
        return None if outbox is None else await self._status(outbox, read)

    async def _status(self, outbox: Outbox, read: StoreState | None = None) -> OutboxStatus:
        state = await outbox.outbox_state()
        limits = await self._store.limits() if read is None else read.limits
        components = component_infos(await self._store.sessions()) if read is None else read.components
        relays = [each for each in components if each.component == "relay"]
        rates = self._rates(relays)
        pauses = {limit.name: _pause(limit) for limit in limits if limit.paused}
        paused_topics = {topic for name in pauses if (topic := paused_topic(name)) is not None}
        by_topic = {each.topic: each for each in state.topics}
        topics: list[TopicInfo] = []
        for topic in sorted({*by_topic, *rates, *paused_topics}):
            found = by_topic.get(topic)
            info = TopicInfo(topic, sent_per_minute=rates[topic], paused=pauses.get(pause_name(topic)))
            if found is not None:
                info = TopicInfo(
                    topic,
                    found.pending,
                    from_optional_ms(found.oldest),
                    rates[topic],
                    found.failed,
                    found.blocked_keys,
                    found.error,
                    info.paused,
                )
            topics.append(info)
        return OutboxStatus(
            tuple(topics), _relays(relays, state), _groups(state), pauses.get(OUTBOX_LIMIT), dict(state.handles)
        )

    def _rates(self, relays: Sequence[ComponentInfo]) -> Counter[str]:
        """Relays write these into their sessions, once per minute."""
        rates: Counter[str] = Counter()
        for relay in relays:
            if self._clock.now() - relay.figures_at < _FRESH:
                rates.update(relay.sent_per_minute)
        return rates

    async def events(
        self,
        *,
        status: str | None = None,
        topic: str | None = None,
        key: str | None = None,
        correlation_id: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[EventInfo]:
        """Return events in the order of publishing. after: the number of the last one of the page before."""
        given = {"status": status, "topic": topic, "key": key, "correlation": correlation_id}
        where = {name: value for name, value in given.items() if value is not None}
        found = await self._outbox("the outbox").find_events(where, after, min(limit, MAX_LISTED))
        return [event_info(stored) for stored in found]

    async def stored(self, event_id: str) -> OutboxEvent | None:
        """Return an event with its payload; None: there is none with this id."""
        found = await self._outbox("the outbox").find_events({"id": event_id}, 0, 1)
        return found[0] if found else None

    async def find_handles(self, correlation_id: str) -> list[HandleInfo]:
        """Return the resume handles of a correlation id, oldest first."""
        outbox = self._outbox("resume handles")
        handles = await outbox.handles([correlation_id])
        arrivals = tuple(await outbox.arrivals(correlation_id)) if handles else ()
        return [HandleInfo(handle, arrivals) for handle in handles]

    async def complete_ids(self, parts: Sequence[str]) -> list[str]:
        """Return the ids of failed events that are, begin or end with these texts; others as they are."""
        failed = [info.id for info in await self.events(status="failed", limit=MAX_LISTED)]
        found: list[str] = []
        for part in parts:
            matching = [each for each in failed if each.startswith(part) or each.endswith(part)]
            found.append(matching[0] if len(matching) == 1 else part)
        return found

    async def retry(self, *ids: str) -> list[str]:
        """Send failed events again; their keys are free when they are sent. Return those that were failed."""
        outbox = self._outbox("outbox retry")
        async with self._recorder.change("retry event", list_names(ids)) as note:
            amended = list(await outbox.amend_events(ids, "retry"))
            note.found = len(ids)
            note.changed = len(amended)
        return amended

    async def discard(self, *ids: str, reason: str = "") -> list[str]:
        """Give failed events up; their keys are free. Return those that were failed. reason: kept with them."""
        outbox = self._outbox("outbox discard")
        async with self._recorder.change("discard event", list_names(ids), reason) as note:
            amended = list(await outbox.amend_events(ids, "discard", stored_text(reason)))
            note.found = len(ids)
            note.changed = len(amended)
        return amended

    async def purge_sent_by_others(self, older_than: timedelta, keep_sent: timedelta) -> PurgeInfo:
        """Mark pending events as sent that occurred so long ago, and delete those that were marked long ago.

        For an outbox that another program reads, such as Debezium. Raises StoreRefused while a relay is alive.

        older_than: the other program has read what is older; keep_sent: how long rows are kept after they were marked.
        """
        outbox = self._outbox("outbox purge")
        if relays := (await self._status(outbox)).relays:
            raise StoreRefused(
                f"a relay is alive on {relays[0].host} (pid {relays[0].pid}): it sends and deletes them itself; stop "
                "it (onthedot worker --without relay) if another program reads the outbox"
            )
        before = self._clock.now() - older_than / _MS
        marked = deleted = last = 0
        async with self._recorder.change("purge outbox", _ALL_TOPICS) as note:
            while page := await outbox.find_events({"status": "pending"}, last, MAX_LISTED):
                last = page[-1].seq
                old = [stored.seq for stored in page if stored.event.occurred_at <= before]
                if old:
                    await outbox.relay(_PURGE, old, {}, None)
                    marked += len(old)
            keep = int(keep_sent / _MS)
            while found := await outbox.purge_events(MAX_LISTED, keep_sent=keep, keep_arrivals=_KEEP_ARRIVALS):
                deleted += found
            note.changed = marked + deleted
        return PurgeInfo(marked, deleted)

    async def pause(self, topic: str | None = None, reason: str = "") -> bool:
        """Send no events of a topic, or none at all; relays notice within a second. Return if it was paused before."""
        self._outbox("outbox pause")
        async with self._recorder.change("pause outbox", topic or _ALL_TOPICS, reason) as note:
            name = pause_name(topic)
            before = await self._limits.change(name, lambda limit: paused_now(limit, reason, self._clock.now()))
            note.changed = int(not before.paused)
        return before.paused

    async def resume(self, topic: str | None = None) -> bool:
        """End a pause. Return if it was paused before."""
        async with self._recorder.change("resume outbox", topic or _ALL_TOPICS) as note:
            before = await self._limits.change(pause_name(topic), not_paused)
            note.changed = int(before.paused)
        return before.paused

    def _outbox(self, verb: str) -> Outbox:
        return capability(self._store, Outbox, verb)


def _relays(relays: Sequence[ComponentInfo], state: OutboxState) -> tuple[RelayInfo, ...]:
    owned: dict[str, list[int]] = {}
    for bucket, session in sorted(state.owners.get(RELAYS, {}).items()):
        owned.setdefault(session, []).append(bucket)
    return tuple(
        RelayInfo(each.id, each.host, each.pid, each.started, each.bus, tuple(owned.get(each.id, ())))
        for each in relays
    )


def _groups(state: OutboxState) -> tuple[GroupInfo, ...]:
    names = sorted({*state.lag, *(group for group in state.owners if group != RELAYS)})
    return tuple(
        GroupInfo(name, state.lag.get(name, 0), len(set(state.owners.get(name, {}).values()))) for name in names
    )


def _pause(limit: Limit) -> Pause:
    return Pause(None, limit.reason, from_optional_ms(limit.paused_since))


def event_info(stored: OutboxEvent) -> EventInfo:
    """The event without its payload."""
    event = stored.event
    return EventInfo(
        event.id,
        stored.seq,
        event.topic,
        event.key,
        event.type,
        stored.status,
        from_ms(event.occurred_at),
        from_optional_ms(stored.sent_at),
        event.aggregate_id,
        event.correlation_id,
        stored.attempts,
        stored.error,
    )
