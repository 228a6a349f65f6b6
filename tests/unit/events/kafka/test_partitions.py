"""Keys have the partitions that Kafka's other clients choose."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from hypothesis import given, strategies as st

from onthedot.events.kafka.partitions import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hash_is_that_of_the_java_client(key: bytes, expected: int) -> None:
    """The keys and values of Kafka's own tests, which count with a sign."""
    assert murmur2(key) == expected % 2**32


@given(st.binary())
def test_hash_is_that_of_aiokafka(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_aiokafka(key)


@given(st.binary(), st.integers(1, 1000))
def test_partition_is_one_of_the_topic(key: bytes, count: int) -> None:
    assert 0 <= partition_of(key, count) < count
