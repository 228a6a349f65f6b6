"""The contract of a bus: it keeps messages in the partitions of topics, and groups read them.

Two buses implement it: Kafka, and the store itself. One conformance suite runs over both (`tests/contract/bus`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from msgspec import Struct


class TopicPartition(NamedTuple):
    """Within it, messages are in order."""

    topic: str
    partition: int


class BusMessage(Struct, frozen=True, gc=False):
    """A message, without its place."""

    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int | None = None  # ms


class BusRecord(Struct, frozen=True, gc=False):
    """A message that was read."""

    topic: str
    partition: int
    offset: int
    message: BusMessage


class BusError(Exception):
    """The bus cannot do what was asked."""


class BusUnreachable(BusError):
    """No broker answers; try again."""


class TopicUnavailable(BusError):
    """The topic does not exist, is forbidden, or a partition of it has no leader; other topics are not affected."""


class RecordRefused(BusError):
    """The bus refuses one message. It has those before it, and none of those after it."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index: int = index  # in the batch


Revoked: TypeAlias = Callable[[Collection[TopicPartition]], Awaitable[None]]


class Subscription(Protocol):
    """A member of a group that reads some topics. Messages of a partition are in order, each at least once."""

    async def read(self, limit: int, timeout: float) -> Sequence[BusRecord]:
        """Up to `limit` messages, at the latest after `timeout` seconds. Call it always: it keeps the membership.

        Paused partitions return nothing. Partitions that are no longer this member's were given to `on_revoked` before.
        """
        ...

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Read nothing of these until `resume`; nothing is lost."""
        ...

    def resume(self, partitions: Collection[TopicPartition]) -> None: ...

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Partition → the offset to read next, if another member takes it. Ignored for partitions of others."""
        ...

    async def lag(self) -> Mapping[TopicPartition, int]:
        """Messages that the group has not committed, of this member's partitions."""
        ...

    async def close(self) -> None:
        """Leave the group, at the latest after 3 seconds."""
        ...


class Bus(Protocol):
    """Where events go."""

    to_log: bool  # the store is the bus: marking an event as sent is what sends it

    async def open(self) -> None: ...

    async def close(self) -> None:
        """At the latest after 3 seconds, also while no broker answers."""
        ...

    async def partition_count(self, topic: str) -> int:
        """Answers within 1 second or so, by `TopicUnavailable` or `BusUnreachable` if need be."""
        ...

    def partition_of(self, key: bytes, count: int) -> int:
        """The partition of a key, as other clients of the bus choose it."""
        ...

    async def send(self, topic: str, partition: int, messages: Sequence[BusMessage]) -> None:
        """Send a batch, in order; when it returns, the bus has all of it.

        While no broker answers it waits. One batch of a partition is sent at a time: the caller sees to that. Raises
        `RecordRefused` or `TopicUnavailable`; the bus can be used on.
        """
        ...

    async def subscribe(self, group: str, topics: Sequence[str], on_revoked: Revoked) -> Subscription:
        """Join a group. A new group begins with the oldest message that is kept."""
        ...

    def peek(self, topic: str) -> AsyncIterator[BusRecord]:
        """All messages of a topic that are kept now, without a group; it ends with the newest.

        topic: a name; or ``*`` and an end, for all topics that end so.
        """
        ...
