"""Reads that serve several callers: one at a time, used again for a while, and not kept for ever."""

from __future__ import annotations

import asyncio

from onthedot.web.context import SharedReads


class Reader:
    """Counts its reads, each of which takes a hundredth of a second."""

    def __init__(self) -> None:
        self.reads = 0

    async def read(self) -> int:
        self.reads += 1
        found = self.reads
        await asyncio.sleep(0.01)
        return found


async def test_callers_of_the_same_moment_share_one_read() -> None:
    shared = SharedReads()
    reader = Reader()
    assert await asyncio.gather(*[shared.get("a", 0, reader.read) for _ in range(5)]) == [1] * 5


async def test_slow_read_is_used_for_a_multiple_of_its_time() -> None:
    shared = SharedReads()
    reader = Reader()
    assert await shared.get("a", 0, reader.read) == 1
    assert await shared.get("a", 0, reader.read, rest=5000) == 1
    assert await shared.get("a", 0, reader.read) == 2
    shared.forget("a")
    assert await shared.get("a", 60, reader.read, rest=5000) == 3


async def test_only_the_newest_names_are_kept() -> None:
    shared = SharedReads()
    reader = Reader()
    assert await shared.get("first", 60, reader.read) == 1
    await asyncio.gather(*[shared.get(f"other {number}", 60, reader.read) for number in range(500)])
    assert await shared.get("other 499", 60, reader.read) <= 501
    assert await shared.get("first", 60, reader.read) == 502
