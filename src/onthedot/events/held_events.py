"""The events that a relay holds: in queues by partition, and in one batch per partition that is being sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from onthedot.events.bus import TopicPartition
from onthedot.stores.contract import OutboxEvent

MAX_BATCH = 500
MAX_BATCH_BYTES = 512 * 1024
MAX_HELD = 2_000
MAX_HELD_BYTES = 32 * 1024 * 1024  # then nothing is read; an answer of the store has up to MAX_READ_BYTES more
MAX_OF_TOPIC = 1_000  # so that a slow topic does not hold back the others
_OVERHEAD = 400  # bytes of a record beyond its payload and the user's headers


class TopicKey(NamedTuple):
    """Within it, events are sent in order."""

    topic: str
    key: str


class HeldEvents:
    """Events that were read from the outbox and are not yet marked. It does no I/O.

    An event waits without a partition until the number of partitions of its topic is known.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}  # by seq
        self._sizes: dict[int, int] = {}  # by seq, in bytes
        self._of_topic: dict[str, int] = {}  # how many
        self.size: int = 0  # bytes
        self._unrouted: dict[str, list[OutboxEvent]] = {}  # by topic
        self._queues: dict[TopicPartition, deque[OutboxEvent]] = {}
        self._sending: dict[TopicPartition, Sequence[OutboxEvent]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    @property
    def seqs(self) -> Collection[int]:
        return self._buckets.keys()

    def busy_buckets(self) -> set[int]:
        return set(self._buckets.values())

    def full_topics(self) -> list[str]:
        return [topic for topic, count in self._of_topic.items() if count >= MAX_OF_TOPIC]

    def unrouted_topics(self) -> Collection[str]:
        return self._unrouted.keys()

    # -- reading

    def add(self, stored: OutboxEvent, partition: int | None) -> None:
        """In order of reading. partition: None if it is not known yet."""
        topic = stored.event.topic
        size = stored.event.size
        self._buckets[stored.seq] = stored.event.bucket
        self._sizes[stored.seq] = size
        self.size += size
        self._of_topic[topic] = self._of_topic.get(topic, 0) + 1
        if partition is None:
            self._unrouted.setdefault(topic, []).append(stored)
            return
        target = TopicPartition(topic, partition)
        queue = self._queues.get(target)
        if queue is None:
            queue = self._queues[target] = deque()
        queue.append(stored)

    def take_unrouted(self, topic: str) -> list[OutboxEvent]:
        """They are no longer held: add them again with their partitions."""
        events = self._unrouted.pop(topic, [])
        self._forget(events)
        return events

    # -- sending

    def ready_partitions(self) -> list[TopicPartition]:
        """Those with a queue and without a batch that is being sent."""
        return [partition for partition in self._queues if partition not in self._sending]

    def start_batch(self, partition: TopicPartition) -> Sequence[OutboxEvent]:
        """The next batch of a partition: at least one event, up to MAX_BATCH and MAX_BATCH_BYTES."""
        queue = self._queues[partition]
        batch: list[OutboxEvent] = []
        size = 0
        while queue and len(batch) < MAX_BATCH:
            size += self._sizes[queue[0].seq] + len(queue[0].event.key) + _OVERHEAD
            if batch and size > MAX_BATCH_BYTES:
                break
            batch.append(queue.popleft())
        if not queue:
            del self._queues[partition]
        self._sending[partition] = batch
        return batch

    def end_batch(self, partition: TopicPartition, done: Sequence[OutboxEvent], again: Sequence[OutboxEvent]) -> None:
        """done: sent, refused or given back to the outbox. again: those that are sent again, before all others."""
        del self._sending[partition]
        self._forget(done)
        if again:
            self._queues.setdefault(partition, deque()).extendleft(reversed(again))

    # -- giving back to the outbox

    def drop_topic(self, topic: str) -> None:
        """All of a topic that are not being sent."""
        self._forget(self._unrouted.pop(topic, []))
        for partition in [each for each in self._queues if each.topic == topic]:
            self._forget(self._queues.pop(partition))

    def drop_key(self, blocked: TopicKey) -> None:
        """All of a key that are not being sent: a failed event blocks it in its topic."""
        for partition in [each for each in self._queues if each.topic == blocked.topic]:
            queue = self._queues.pop(partition)
            self._forget([stored for stored in queue if stored.event.key == blocked.key])
            rest = deque(stored for stored in queue if stored.event.key != blocked.key)
            if rest:
                self._queues[partition] = rest

    def drop_waiting(self) -> None:
        """All that are not being sent."""
        for topic in {*self._unrouted, *(partition.topic for partition in self._queues)}:
            self.drop_topic(topic)

    def _forget(self, events: Collection[OutboxEvent]) -> None:
        for stored in events:
            del self._buckets[stored.seq]
            self.size -= self._sizes.pop(stored.seq)
            topic = stored.event.topic
            self._of_topic[topic] -= 1
            if not self._of_topic[topic]:
                del self._of_topic[topic]
