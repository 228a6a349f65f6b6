"""The partition of a key, as Kafka's other clients choose it: 32-bit MurmurHash2 of its bytes."""

from __future__ import annotations

import struct
from functools import lru_cache

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash without a sign.

    >>> murmur2(b"21") - 2**32
    -973932308
    """
    length = len(data)
    hashed = _SEED ^ length
    words = length // 4
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = word * _FACTOR & _MASK
        mixed = (mixed ^ mixed >> 24) * _FACTOR & _MASK
        hashed = (hashed * _FACTOR & _MASK) ^ mixed
    if rest := data[words * 4 :]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15


def partition_of(key: bytes, count: int) -> int:
    """The partition of a key in a topic with `count` partitions."""
    return 0 if count == 1 else (_hash_of(key) & 0x7FFFFFFF) % count


_hash_of = lru_cache(maxsize=4096)(murmur2)  # several events have the same key
