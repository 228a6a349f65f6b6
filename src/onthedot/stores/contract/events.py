"""Events: an outbox that keeps them until a relay has sent them, a log if the store is the bus, and resume handles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

BUCKETS = 16  # bucket = crc32(key) & 15; one member of a group owns a bucket, so the events of a key stay in order
MAX_EVENTS = 1000  # that one call publishes
MAX_READ_BYTES = 8 * 1024 * 1024  # of events in one answer; the event that reaches it is the last
RELAYS = ""  # the group of the relays; other groups read the log of the store

EventStatus: TypeAlias = Literal["pending", "sent", "failed", "discarded"]
"""failed: the bus refuses it; later events of its key in its topic wait for an operator.

discarded: an operator gave it up.
"""
HandleStatus: TypeAlias = Literal["pending", "complete", "resumed", "expired"]
"""complete: all that it expects is stored. resumed: the waiting task or flow has been woken."""


class NewEvent(Struct, frozen=True, gc=False):
    """An event to be published. The store reads id, topic, key and bucket; the rest is for the relay."""

    id: str  # unique in the outbox: the first event with an id stays
    topic: str
    key: str
    bucket: int
    type: str = ""
    version: int = 1
    aggregate_type: str = ""
    aggregate_id: str = ""
    correlation_id: str | None = None
    causation_id: str | None = None
    retries: int = 0
    occurred_at: int = 0  # ms
    payload: bytes | None = None  # JSON
    raw: bytes | None = None  # instead of the payload: the bytes of a dead letter or a replay
    headers: bytes | None = None  # JSON object

    @property
    def size(self) -> int:
        """Bytes, without the small fields."""
        return len(self.payload or b"") + len(self.raw or b"") + len(self.headers or b"")


class OutboxEvent(Struct, frozen=True, gc=False):
    """An event as the outbox keeps it."""

    seq: int
    event: NewEvent
    status: EventStatus = "pending"
    attempts: int = 0  # sends that the bus has refused
    error: str = ""
    sent_at: int | None = None
    position: int | None = None  # in the log of its bucket, where the store is the bus


class RelayRequest(Struct, frozen=True):
    """The request of a relay: which events it takes now."""

    limit: int = 500
    in_flight: Sequence[int] = ()  # seqs that it holds: they are not returned again
    busy: Sequence[int] = ()  # buckets of these: it keeps them until they are sent
    skip_topics: Sequence[str] = ()


class RelayResult(Struct, frozen=True):
    """The answer to a relay."""

    alive: bool  # False: its session is over; open another and forget what is in flight
    events: Sequence[OutboxEvent] = ()  # by seq
    buckets: Sequence[int] = ()  # that it owns
    more: bool = False  # the limit or MAX_READ_BYTES was reached, or a part of the outbox was not looked at


class LogPage(Struct, frozen=True):
    """Events that were read from the log of the store.

    A store may pass over a bounded part of the log in one call: a page without events is not always the end of it. Of
    MAX_READ_BYTES, each bucket may have an equal part.
    """

    alive: bool
    events: Sequence[OutboxEvent] = ()  # by bucket and position
    buckets: Mapping[int, int] = {}  # that the session owns → the position up to which it has read now


class UnreadCount(Struct, frozen=True):
    """Events of a topic in the log of a bucket that a group has not committed."""

    topic: str
    bucket: int
    count: int


class Arrival(Struct, frozen=True, gc=False):
    """A result event that a resume handle may count."""

    correlation_id: str
    event_id: str
    type: str
    event: bytes  # JSON
    at: int = 0  # ms, set by the store


class HandleRecord(Struct, frozen=True, gc=False):
    """A resume handle: who is woken after which events."""

    id: str
    correlation_id: str
    expected: tuple[tuple[tuple[str, ...], int], ...]  # (types, of which so many together)
    target: str  # "signal", or "prefect:<flow run>"
    timeout: int  # ms
    status: HandleStatus = "pending"
    created: int = 0  # ms, set by the store, as the two below
    expires_at: int = 0
    ended: int | None = None


class TopicState(Struct, frozen=True):
    """The outbox of one topic."""

    topic: str
    pending: int = 0
    oldest: int | None = None  # ms: when the oldest pending event occurred
    failed: int = 0
    blocked_keys: int = 0  # with a failed event
    error: str = ""  # of the newest failed event


class OutboxState(Struct, frozen=True):
    """The figures of `onthedot outbox status`."""

    topics: Sequence[TopicState]
    owners: Mapping[str, Mapping[int, str]]  # group → bucket → session
    lag: Mapping[str, int]  # group of the store bus → events of the log that it has not committed
    handles: Mapping[HandleStatus, int]
