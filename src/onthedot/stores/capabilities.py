"""What some stores do besides the contract: asked by isinstance, and refused clearly where it is not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from onthedot.stores.contract import Added, NewTask, Outcome, Verdict

NO_TRANSACTION = "memory:// and redis:// have no transaction to join"


@runtime_checkable
class SyncTransactions(Protocol):
    """SQL stores: a verb inside the caller's transaction, on the caller's thread and connection. Never suspends."""

    def add_in(self, connection: Any, tasks: Sequence[NewTask]) -> Sequence[Added]: ...
    def settle_in(self, connection: Any, outcome: Outcome) -> Verdict: ...


@runtime_checkable
class AsyncTransactions(SyncTransactions, Protocol):
    """Through an async connection as well: awaited, on the caller's loop."""

    async def add_awaited(self, connection: Any, tasks: Sequence[NewTask]) -> Sequence[Added]: ...
    async def settle_awaited(self, connection: Any, outcome: Outcome) -> Verdict: ...


class ServerInfo(Struct, frozen=True):
    """The machine and program behind a store."""

    now: float  # ms, by its clock
    program: str = ""  # and its version
    memory: int = 0  # bytes it uses
    memory_limit: int = 0  # bytes it may use; 0: there is no limit, or it is not the store's to know


@runtime_checkable
class HasServerInfo(Protocol):
    """Stores with a clock of their own."""

    async def server(self) -> ServerInfo: ...


@runtime_checkable
class HasHandoff(Protocol):
    """Stores that lease new tasks to an idle worker in the call that adds them, if its claim request has an offer."""

    max_handoff_sources: int  # more in one offer would make the request slow
