"""Reads that serve several callers: one at a time, used again for a while, and not kept for ever."""

from __future__ import annotations

import asyncio

import pytest

from onthedot.web import shared_reads
from onthedot.web.errors import ApiError
from onthedot.web.shared_reads import LongReads, SharedReads
from tests.support.waits import SOON, until


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
    assert await shared.get("a", 0, reader.read, rest=5000) == 1
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


async def test_answer_is_dropped_when_it_cannot_be_used_again() -> None:
    shared = SharedReads()
    reader = Reader()
    await asyncio.gather(shared.get("flow 1", 0, reader.read), shared.get("flow 2", 0, reader.read))
    assert len(shared) == 0
    await shared.get("metrics", 0.05, reader.read)
    assert len(shared) == 1
    await until(lambda: len(shared) == 0)


async def test_failed_read_is_not_used_again() -> None:
    shared = SharedReads()
    reader = Reader()

    async def fail() -> int:
        raise ValueError("no broker")

    with pytest.raises(ValueError, match="no broker"):
        await shared.get("a", 60, fail)
    assert await shared.get("a", 60, reader.read) == 1


async def test_long_reads_go_on_one_at_a_time_with_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    scans = LongReads("letters", 10)
    times: list[float] = []

    async def scan() -> None:
        times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.01)
        times.append(asyncio.get_running_loop().time())

    with monkeypatch.context() as patched:
        patched.setattr(shared_reads, "MAX_WAIT", 10 * SOON)  # a busy machine may make the scan long
        await asyncio.gather(scans.run(scan), scans.run(scan))
    assert times[2] - times[1] >= 10 * (times[1] - times[0]) * 0.99
    scans = LongReads("letters", 6000)
    results = await asyncio.gather(*[scans.run(scan) for _ in range(5)], return_exceptions=True)
    assert [type(each) for each in results] == [type(None), *[ApiError] * 4]
