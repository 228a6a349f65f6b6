"""Optional abilities of stores, beyond the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from onthedot.errors import StoreRefused
from onthedot.stores.contract import Added, Limit, NewTask, Note, Outcome, Verdict

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
