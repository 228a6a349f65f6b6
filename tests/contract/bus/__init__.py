"""The conformance suite of buses: one file per facet of `onthedot.events.bus`, the same tests over every kind of bus.

A kind knows the server of a bus and how messages come into its topics; `conftest.py` lists them. Tests see a message as
a key and a number, since the store bus writes its messages itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from onthedot.events.bus import Bus, BusRecord, Subscription, TopicPartition
from tests.support.waits import SOON


class Numbered(NamedTuple):
    """A message."""

    key: str
    number: int


def numbered(keys: Iterable[str], numbers: Iterable[int]) -> list[Numbered]:
    """Every number of every key, in order of the numbers."""
    names = list(keys)
    return [Numbered(key, number) for number in numbers for key in names]


class BusServer(Protocol):
    """Where the messages of one kind of bus live. Processes that share it have a bus each."""

    has_unknown_topics: bool  # otherwise every topic exists
    refuses_records: bool  # a record may be too large

    def new_bus(self) -> Bus: ...

    def new_topic(self) -> str:
        """With at least two partitions. A kind that refuses records refuses more than 10 kB in it."""
        ...

    async def put(self, topic: str, messages: Sequence[Numbered]) -> None:
        """Each into the partition of its key; returns when they can be read."""
        ...

    def to_message(self, record: BusRecord) -> Numbered: ...

    async def close(self) -> None: ...


class Member:
    """A member of a group, with all that it has read."""

    def __init__(self, server: BusServer) -> None:
        self._server = server
        self.subscription: Subscription
        self.records: list[BusRecord] = []
        self.revoked: list[TopicPartition] = []
        self.commits_at_revoke = False

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.revoked += partitions
        if self.commits_at_revoke:
            await self.commit()

    @property
    def messages(self) -> list[Numbered]:
        return [self._server.to_message(record) for record in self.records]

    async def read(self) -> None:
        self.records += await self.subscription.read(100, 0.1)

    async def read_messages(self, count: int) -> list[Numbered]:
        """Until it has read so many in all."""
        await poll([self], lambda: len(self.records) >= count)
        return self.messages

    async def commit(self) -> None:
        """All that it has read."""
        offsets: dict[TopicPartition, int] = {}
        for each in self.records:
            place = TopicPartition(each.topic, each.partition)
            offsets[place] = max(offsets.get(place, 0), each.offset + 1)
        await self.subscription.commit(offsets)

    async def partitions(self) -> set[TopicPartition]:
        """Those that it owns now."""
        return set(await self.subscription.lag())


async def poll(members: Sequence[Member], condition: Callable[[], Any], timeout: float = SOON) -> None:
    """All members read until the condition is true."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s"
        await asyncio.gather(*(member.read() for member in members))


class BusHouse:
    """The server of a test, its buses and their members; all of them are closed at its end."""

    def __init__(self, server: BusServer) -> None:
        self.server = server
        self._buses: list[Bus] = []
        self._members: list[Member] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(member.subscription.close() for member in self._members))
        await asyncio.gather(*(bus.close() for bus in self._buses))
        await self.server.close()

    async def open_bus(self) -> Bus:
        bus = self.server.new_bus()
        await bus.open()
        self._buses.append(bus)
        return bus

    async def join(self, group: str, *topics: str) -> Member:
        """A member with a bus of its own, as in a process of its own."""
        member = Member(self.server)
        bus = await self.open_bus()
        member.subscription = await bus.subscribe(group, topics, member.on_revoked)
        self._members.append(member)
        return member

    async def leave(self, member: Member) -> None:
        await member.subscription.close()
        self._members.remove(member)

    async def owners(self, *members: Member) -> None:
        """Returns when each of the members owns partitions, and none is owned twice."""
        while True:
            await asyncio.gather(*(member.read() for member in members))
            owned = await asyncio.gather(*(member.partitions() for member in members))
            if all(owned) and sum(map(len, owned)) == len(set().union(*owned)):
                return
