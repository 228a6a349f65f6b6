"""The storage that the rules of the outbox work on. The memory and SQLite stores implement it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from onthedot.stores.contract import Arrival, HandleRecord, HandleStatus, NewEvent, OutboxEvent
from onthedot.stores.rules.task_tables import TaskTables

MAX_SET_ASIDE = 10_000  # pending events of blocked keys that one call sets aside


class PendingPage(NamedTuple):
    """Events that a relay may send."""

    events: list[OutboxEvent]
    more: bool  # there may be further ones


def take_bytes(events: Iterable[OutboxEvent], most: int) -> PendingPage:
    """The first events, up to the one with which they have so many bytes; no more are read from the iterable."""
    taken: list[OutboxEvent] = []
    size = 0
    for stored in events:
        taken.append(stored)
        size += stored.event.size
        if size >= most:
            return PendingPage(taken, more=True)
    return PendingPage(taken, more=False)


class EventTables(Protocol):
    """Storage verbs of one call. No verb decides who owns a bucket or when a handle is complete."""

    def insert(self, events: Sequence[NewEvent]) -> list[bool]:
        """Number and keep the events whose id is new."""
        ...

    def mark_sent(self, seqs: Sequence[int], *, to_log: bool) -> None:
        """Pending and failed events are sent; a key that has waited for a failed one is free.

        to_log: each gets the next position of its bucket, in this order.
        """
        ...

    def mark_failed(self, refused: Mapping[int, str]) -> None:
        """Pending events are failed, with one more attempt."""
        ...

    def pending(
        self, buckets: Collection[int], in_flight: Collection[int], skip_topics: Collection[str], limit: int
    ) -> PendingPage:
        """By seq, without events whose key has a failed one in the same topic.

        Those are set aside when they are met, so that they cost later calls nothing, until the failed one is amended.
        """
        ...

    # -- groups

    def join(self, group: str, session: str) -> Sequence[str]:
        """The members of the group, with the session; a session leaves its groups with its end."""
        ...

    def owners(self, group: str) -> Mapping[int, str]:
        """Of the buckets that are owned."""
        ...

    def set_owner(self, group: str, bucket: int, session: str | None) -> None: ...
    def committed(self, group: str) -> Mapping[int, int]:
        """Bucket → position; 0 where nothing was committed is left out."""
        ...

    def commit(self, group: str, bucket: int, position: int) -> None: ...
    def read_log(
        self, bucket: int, topics: Collection[str], after: int, limit: int, most: int
    ) -> tuple[list[OutboxEvent], int]:
        """Events by position, and the position up to which the log was read. most: bytes, see `take_bytes`."""
        ...

    # -- resume handles

    def insert_arrivals(self, arrivals: Sequence[Arrival]) -> None: ...
    def handles_of(self, correlation_id: str) -> list[HandleRecord]:
        """Oldest first, as they are stored."""
        ...

    def find_handle(self, handle_id: str) -> HandleRecord | None: ...
    def save_handle(self, handle: HandleRecord) -> None: ...
    def set_status(self, handle_id: str, status: HandleStatus, ended: int) -> None: ...
    def count_arrivals(self, correlation_id: str) -> Mapping[str, int]:
        """By type."""
        ...


class OutboxTables(TaskTables, Protocol):
    """The tables of a store with an outbox."""

    @property
    def events(self) -> EventTables: ...
