"""Values that would be random in production: streams of chance and uuids that follow from the seed."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from itertools import count
from random import Random


def stream(seed: int, kind: str) -> Random:
    """Each kind of decision has its own stream, so that removing one kind does not change the others."""
    return Random(f"{seed}/{kind}")


def uuids(seed: int, node: str) -> Callable[[], str]:
    """Makes the uuids of a node."""
    numbers = count(1)
    digest = blake2b(f"{seed}/{node}".encode(), digest_size=6).hexdigest()

    def new_uuid() -> str:
        number = next(numbers)
        return f"00000000-0000-7000-8{number >> 12:03x}-{number & 0xFFF:03x}{digest[3:]}"

    return new_uuid
