"""Sessions: the presence of a worker process in a store, and the hints it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct

from onthedot.stores.contract.claims import Lease, LeasedTasks

MAX_SUBSCRIPTIONS = 10_000  # per session
SESSION_FORMAT = 2  # in the info of a session: from 2 on, its worker increments the counters of links
CLIENT_LEASE = 10_000  # ms that a session lives that cancels, lifts or subscribes without having sent a heartbeat


class HeartbeatResult(Struct, frozen=True):
    """The answer to a heartbeat."""

    alive: bool  # False: the session was reaped before; open one with a new name
    cancel_requests: Sequence[Lease] = ()  # its runs that are to be cancelled


class HandoffMessage(Struct, frozen=True):
    """New tasks, leased to an idle worker under the number of its next claim request."""

    number: int  # repeating a request with this number returns the same tasks
    leased: LeasedTasks


class Hint(Struct, frozen=True):
    """A notification that may be lost, doubled or late. After each (re)connect, `resync` is set."""

    sources: frozenset[str] = frozenset()  # have ready tasks, or an earlier alarm
    cancel_requests: Mapping[str, str] = MappingProxyType({})  # own runs to be cancelled: uuid → reason
    ended: frozenset[str] = frozenset()  # uuids whose policy has this session as reply_to, or that it subscribes to
    resync: bool = False
    recheck: bool = False  # a chore, a schedule or an alarm of no source: claim again
    handoff: HandoffMessage | None = None
    new_items: frozenset[str] = frozenset()  # uuids that it subscribes to and that have new items
    events: bool = False  # it relays or reads events, and there are new ones


class Hints(Protocol):
    """A stream of hints, open from the first `__anext__` on. `aclose` does not wait."""

    def __aiter__(self) -> Hints: ...
    async def __anext__(self) -> Hint: ...
    async def aclose(self) -> None: ...
