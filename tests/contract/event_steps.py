"""Helpers for events, with one line per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any
from zlib import crc32

from onthedot.stores.capabilities import Outbox
from onthedot.stores.contract import BUCKETS, HandleRecord, LogPage, NewEvent, RelayRequest, RelayResult, Store
from tests.contract.steps import LEASE

_numbers = count(1)
TOPIC = "shop.order.events"


def event(key: str = "k", topic: str = TOPIC, event_id: str | None = None, **fields: Any) -> NewEvent:
    return NewEvent(event_id or f"e{next(_numbers):06}", topic, key, bucket_of(key), **fields)


def bucket_of(key: str) -> int:
    return crc32(key.encode()) % BUCKETS


def key_in(bucket: int) -> str:
    """A key of a bucket."""
    return next(f"k{number}" for number in count() if bucket_of(f"k{number}") == bucket)


def outbox(store: Store) -> Outbox:
    assert isinstance(store, Outbox)
    return store


class Relay:
    """A session that relays; what it has read is in flight until it is sent or refused."""

    def __init__(self, store: Store, name: str = "r1", *, to_log: bool = False) -> None:
        self._sessions = store
        self._store = outbox(store)
        self.name: str = name
        self._to_log = to_log
        self.in_flight: dict[int, NewEvent] = {}
        self.skip_topics: Sequence[str] = ()

    async def open(self, lease: int = LEASE) -> Relay:
        await self._sessions.heartbeat(self.name, b"{}", lease)
        return self

    async def turn(
        self, sent: Sequence[str] = (), refused: Mapping[str, str] | None = None, limit: int = 500
    ) -> RelayResult:
        seqs = {new.id: seq for seq, new in self.in_flight.items()}
        for event_id in (*sent, *(refused or {})):
            del self.in_flight[seqs[event_id]]
        request = RelayRequest(
            limit, tuple(self.in_flight), sorted({new.bucket for new in self.in_flight.values()}), self.skip_topics
        )
        errors = {seqs[event_id]: error for event_id, error in (refused or {}).items()}
        result = await self._store.relay(
            self.name, [seqs[event_id] for event_id in sent], errors, request, to_log=self._to_log
        )
        self.in_flight.update({stored.seq: stored.event for stored in result.events})
        return result

    async def read(
        self, sent: Sequence[str] = (), refused: Mapping[str, str] | None = None, limit: int = 500
    ) -> list[str]:
        """The ids that it gets."""
        result = await self.turn(sent, refused, limit)
        return [stored.event.id for stored in result.events]

    async def send_all(self) -> list[str]:
        """Read and send until there is nothing left; the ids in the order of sending."""
        sent: list[str] = []
        while ids := await self.read():
            await self._store.relay(self.name, list(self.in_flight), {}, None, to_log=self._to_log)
            self.in_flight.clear()
            sent += ids
        return sent


class Reader:
    """A session that reads the log in a group."""

    def __init__(self, store: Store, name: str, group: str = "g", topics: Sequence[str] = (TOPIC,)) -> None:
        self._sessions = store
        self._store = outbox(store)
        self.name: str = name
        self._group = group
        self._topics = topics
        self.positions: dict[int, int] = {}

    async def open(self, lease: int = LEASE) -> Reader:
        await self._sessions.heartbeat(self.name, b"{}", lease)
        return self

    async def page(self, limit: int = 1600) -> LogPage:
        page = await self._store.read_log(self._group, self.name, self._topics, self.positions, limit)
        self.positions = dict(page.buckets)
        return page

    async def read(self, limit: int = 1600) -> list[str]:
        return [stored.event.id for stored in (await self.page(limit)).events]

    async def commit(self, positions: Mapping[int, int] | None = None) -> None:
        """Up to these positions; by default all that it has read."""
        await self._store.commit_positions(self._group, self.name, self.positions if positions is None else positions)


def handle(
    handle_id: str = "h1",
    correlation_id: str = "c1",
    expected: Sequence[tuple[Sequence[str], int]] = ((("Done",), 1),),
    timeout: int = 60_000,
) -> HandleRecord:
    wanted = tuple((tuple(types), number) for types, number in expected)
    return HandleRecord(handle_id, correlation_id, wanted, "signal", timeout)
