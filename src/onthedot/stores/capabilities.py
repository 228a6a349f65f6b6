"""Optional abilities of stores, beyond the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from onthedot.errors import StoreRefused
from onthedot.stores.contract import (
    Added,
    Arrival,
    HandleRecord,
    Limit,
    LogPage,
    NewEvent,
    NewTask,
    Note,
    OutboxEvent,
    OutboxState,
    Outcome,
    RelayRequest,
    RelayResult,
    UnreadCount,
    Verdict,
)

T = TypeVar("T")


@runtime_checkable
class SyncTransactions(Protocol):
    """SQL stores: a verb in the caller's transaction, on the caller's thread and connection. It never suspends."""

    def add_in(self, connection: Any, tasks: Sequence[NewTask]) -> Sequence[Added]:
        """Add with the caller's commit, or not at all."""
        ...

    def settle_in(self, connection: Any, outcome: Outcome) -> Verdict:
        """Settle with the caller's commit. If the answer is not "ok", the caller should roll back."""
        ...


@runtime_checkable
class SyncNotes(Protocol):
    """SQL stores: a note in the caller's transaction, on the caller's thread and connection. It never suspends."""

    def note_in(self, connection: Any, note: Note) -> Verdict:
        """Write the note with the caller's commit. If the answer is "lost", the caller should roll back."""
        ...


@runtime_checkable
class AsyncNotes(SyncNotes, Protocol):
    """The same through an async connection, awaited on the caller's event loop."""

    async def note_awaited(self, connection: Any, note: Note) -> Verdict: ...


@runtime_checkable
class FileTransactions(SyncTransactions, Protocol):
    """Stores with one writer: opening may have to wait for the caller's transaction, so it is read inside of that."""

    def limits_in(self, connection: Any) -> Sequence[Limit]:
        """The limits, as the caller's transaction sees them."""
        ...


@runtime_checkable
class AsyncTransactions(SyncTransactions, Protocol):
    """The same through an async connection, awaited on the caller's event loop."""

    async def add_awaited(self, connection: Any, tasks: Sequence[NewTask]) -> Sequence[Added]: ...
    async def settle_awaited(self, connection: Any, outcome: Outcome) -> Verdict: ...


@runtime_checkable
class Outbox(Protocol):
    """Stores that keep events with the tasks: an outbox for a relay, a log for groups of readers, resume handles."""

    async def publish(self, events: Sequence[NewEvent]) -> Sequence[bool]:
        """Keep up to MAX_EVENTS events; False: one with this id is kept already, and it stays as it is."""
        ...

    async def relay(
        self,
        session: str,
        sent: Sequence[int],
        refused: Mapping[int, str],
        request: RelayRequest | None,
        *,
        to_log: bool = False,
    ) -> RelayResult:
        """Mark what was sent or refused, then read what is to be sent, in one step.

        sent: seqs, in the order in which they were sent. They are marked whether or not the session lives: they are on
        the bus. refused: seq → error; it is failed, and pending events of its key in its topic are held back.
        to_log: the store is the bus: what is sent gets the next positions in the log of its bucket, in this order.

        With a request: reaps dead sessions. The session joins the relays and owns a fair share of the buckets, while it
        lives. It gives back what exceeds its share, and those that are busy as soon as they no longer are; of these it
        gets no more events. Events are pending ones of its buckets, by seq.
        """
        ...

    async def read_log(
        self, group: str, session: str, topics: Sequence[str], after: Mapping[int, int], limit: int
    ) -> LogPage:
        """Events of the topics in the log, of the buckets that the session owns in its group.

        It joins the group and gets its share of the buckets as a relay does. It reads on after these positions; a
        bucket that is not named is read from the group's committed position. The log of a bucket has no gaps for a
        reader: a position is visible after all lower ones.

        A bucket that exceeds its share is missing in the answer. If it was named, the session keeps it until the next
        call, so that it can commit what is done; otherwise it is given back at once.
        """
        ...

    async def commit_positions(self, group: str, session: str, positions: Mapping[int, int]) -> None:
        """Bucket → the position up to which all is done. Ignored for a bucket that the session no longer owns; a
        position never goes back."""
        ...

    async def record_arrivals(self, arrivals: Sequence[Arrival]) -> None:
        """Keep arrivals, each once per correlation id and event id: the first stays."""
        ...

    async def complete_handles(
        self, correlation_ids: Sequence[str], resumed: Sequence[str] = ()
    ) -> Sequence[HandleRecord]:
        """Complete the pending handles of these correlation ids whose expectation is met; expire those past their time.

        resumed: ids of complete handles whose waiter has been woken. The answer has every handle of these correlation
        ids that is complete, also from an earlier call, and not resumed.
        """
        ...

    async def create_handle(self, handle: HandleRecord, tasks: Sequence[NewTask] = ()) -> HandleRecord:
        """Keep a pending handle and add the tasks with it; created and expires_at are set by the store's clock.

        If there is a handle of this id, it is the answer and nothing is added. If another handle of this correlation
        id is pending and not past its time, that one is the answer.
        """
        ...

    async def handles(self, correlation_ids: Sequence[str]) -> Sequence[HandleRecord]:
        """All handles of these correlation ids, oldest first; one past its time is shown as expired."""
        ...

    async def arrivals(self, correlation_id: str) -> Sequence[Arrival]:
        """In order of arrival."""
        ...

    async def unread(self, group: str, topics: Sequence[str]) -> Sequence[UnreadCount]:
        """The events of the topics in the log that a group has not committed; nothing where there are none."""
        ...

    async def amend_events(
        self, ids: Sequence[str], action: Literal["retry", "discard"], reason: str = ""
    ) -> Sequence[str]:
        """Failed events become pending again, or discarded; their keys are free. The answer has the ids amended.

        reason: of a discard; it replaces the error, unless it is empty
        """
        ...

    async def find_events(self, where: Mapping[str, str], after: int, limit: int) -> Sequence[OutboxEvent]:
        """By seq, above `after`. where: id, status, topic, key, correlation. A topic that begins with ``*`` stands for
        all that end so."""
        ...

    async def outbox_state(self) -> OutboxState: ...

    async def purge_events(self, limit: int, *, keep_sent: int, keep_arrivals: int) -> int:
        """Delete up to `limit` of each: events that were sent or discarded `keep_sent` ms ago, arrivals without a
        handle after `keep_arrivals` ms, and handles with their arrivals `keep_sent` ms after their end."""
        ...


@runtime_checkable
class SyncOutbox(Outbox, Protocol):
    """SQL stores: events in the caller's transaction, on the caller's thread and connection. It never suspends."""

    def publish_in(self, connection: Any, events: Sequence[NewEvent]) -> Sequence[bool]: ...
    def create_handle_in(
        self, connection: Any, handle: HandleRecord, tasks: Sequence[NewTask] = ()
    ) -> HandleRecord: ...


@runtime_checkable
class AsyncOutbox(SyncOutbox, Protocol):
    """The same through an async connection, awaited on the caller's event loop."""

    async def publish_awaited(self, connection: Any, events: Sequence[NewEvent]) -> Sequence[bool]: ...
    async def create_handle_awaited(
        self, connection: Any, handle: HandleRecord, tasks: Sequence[NewTask] = ()
    ) -> HandleRecord: ...


class ServerInfo(Struct, frozen=True):
    """The server behind a store."""

    now: float  # ms, by its clock
    program: str = ""  # and its version
    memory: int = 0  # bytes that it uses
    memory_limit: int = 0  # bytes that it may use; 0: no limit, or unknown


@runtime_checkable
class HasServerInfo(Protocol):
    """Stores on a server, which has its own clock."""

    async def server(self) -> ServerInfo: ...


@runtime_checkable
class HasHandoff(Protocol):
    """Stores that lease new tasks to an idle worker in the call that adds them, if its claim request has an offer."""

    max_handoff_sources: int  # more in one offer would make the request slow


@runtime_checkable
class Repairable(Protocol):
    """Stores whose verbs are scripts: one that is aborted is not rolled back, and may leave tasks in no place."""

    async def unplaced(self, *, requeue: bool = False) -> Sequence[str]:
        """The uuids of tasks that are in no queue, lane, alarm, lease or end, among the newest 200,000 records.

        requeue: They get an alarm at their due time, so that a worker finds them; tasks are counted again, unless there
        are more records.
        """
        ...

    async def set_aside(self) -> Sequence[bytes]:
        """The bytes of records whose uuid cannot be read. They count as failed, and nothing else is left of them."""
        ...


_MISSING: dict[type, str] = {
    SyncTransactions: "memory:// and redis:// have no transaction to join; sqlite:/// and postgresql:// do",
    SyncNotes: "memory:// and redis:// have no transaction to join; sqlite:/// and postgresql:// do",
    AsyncNotes: "only postgresql:// joins the transaction of an async connection",
    FileTransactions: "only sqlite:/// has one writer",
    AsyncTransactions: "only postgresql:// joins the transaction of an async connection",
    Outbox: 'redis:// has no outbox; Events(outbox="postgresql://…") keeps events in another database',
    SyncOutbox: "memory:// and redis:// have no transaction to join; sqlite:/// and postgresql:// do",
    AsyncOutbox: "only postgresql:// joins the transaction of an async connection",
    HasHandoff: "only redis:// has it",
    Repairable: "the verbs of the other stores are transactions, so there is nothing to repair; redis:// needs it",
    HasServerInfo: "memory:// and sqlite:/// have no server; redis:// and postgresql:// do",
}


def find_capability(store: object, kind: type[T]) -> T | None:
    """The store as `kind`; None: it lacks that."""
    return store if isinstance(store, kind) else None


def capability(store: object, kind: type[T], verb: str) -> T:
    """The store as `kind`; otherwise StoreRefused names the verb and the stores that have it."""
    if not isinstance(store, kind):
        raise StoreRefused(f"{verb}: {_MISSING[kind]}")
    return store
