"""The state of a Kafka for an operator: topics, and the groups of an app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct


class KafkaTopicState(Struct, frozen=True):
    """A topic. Of replicas the fewest that one of its partitions has."""

    name: str
    partitions: int = 0  # 0: it does not exist, or this user may not see it
    error: str = ""  # why there are none
    replicas: int = 0
    in_sync: int = 0
    without_leader: int = 0  # partitions
    min_in_sync: int | None = None  # `min.insync.replicas`; None: this user may not read it
    retention_ms: int | None = None  # -1: records are kept for good; None: this user may not read it


class KafkaGroupState(Struct, frozen=True):
    """A consumer group. lag: records that it has not committed, by topic; of all topics that it has ever read."""

    name: str
    members: int
    lag: Mapping[str, int]


class KafkaState(Struct, frozen=True):
    """The topics that were asked for, and those that the groups read."""

    brokers: int
    topics: Sequence[KafkaTopicState]
    groups: Sequence[KafkaGroupState]
