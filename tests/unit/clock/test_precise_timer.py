"""The precise timer: never early, close to its moment, and without leftovers."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from onthedot.clock import system
from onthedot.clock.system import PreciseTimer

T = TypeVar("T")

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has timerfd")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def lateness(seconds: float) -> float:
    """Milliseconds by which the timer was late."""
    fired = asyncio.get_running_loop().create_future()
    began = time.monotonic()
    PreciseTimer(seconds, lambda: fired.set_result(time.monotonic()))
    return (await fired - began - seconds) * 1000


@pytest.mark.parametrize("seconds", [-1, 0, 0.0005, 0.019, 0.021, 0.05])
async def test_a_precise_timer_is_never_early(seconds: float) -> None:
    assert await lateness(seconds) >= 0


@pytest.mark.timed
@linux
async def test_a_precise_timer_is_more_exact_than_asyncio() -> None:
    async def asyncio_late(seconds: float) -> float:
        fired = asyncio.get_running_loop().create_future()
        began = time.monotonic()
        asyncio.get_running_loop().call_later(seconds, lambda: fired.set_result(time.monotonic()))
        return (await fired - began - seconds) * 1000

    precise = []
    coarse = []
    for step in range(40):
        wait = 0.001 + step * 0.00037
        precise.append(await lateness(wait))
        coarse.append(await asyncio_late(wait))
    assert statistics.median(precise) < statistics.median(coarse)


@linux
@pytest.mark.parametrize("seconds", [0.001, 0.03])
async def test_a_fired_or_cancelled_timer_leaves_no_descriptor(seconds: float) -> None:
    before = descriptors()
    await lateness(seconds)
    cancelled = PreciseTimer(seconds, lambda: pytest.fail("it was cancelled"))
    cancelled.cancel()
    cancelled.cancel()
    await lateness(seconds + 0.01)
    assert descriptors() == before


async def test_asyncio_times_where_the_kernel_has_no_timerfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "timerfd_library", lambda: None)
    assert await lateness(0.03) >= 0
    PreciseTimer(0.001, lambda: pytest.fail("it was cancelled")).cancel()
    await lateness(0.005)  # a later timer has fired


def on_uvloop(coroutine: Coroutine[Any, Any, T]) -> T:
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)


async def many_late(seconds: float, blocked: float = 0.0) -> list[float]:
    """blocked: seconds for which other code blocks the loop before each timer is set."""
    late = []
    for step in range(20):
        await asyncio.sleep(0)
        time.sleep(blocked)  # noqa: ASYNC251
        late.append(await lateness(seconds + step * 0.00037))
    return late


@pytest.mark.parametrize("timerfd", [True, False])
@pytest.mark.parametrize("blocked", [0.0, 0.003])
@pytest.mark.parametrize("seconds", [0.0005, 0.021])
def test_a_precise_timer_is_never_early_on_uvloop(
    seconds: float, blocked: float, timerfd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of that loop is in whole milliseconds, and it rounds its timers to the nearest one."""
    if not timerfd:
        monkeypatch.setattr(system, "timerfd_library", lambda: None)
    assert min(on_uvloop(many_late(seconds, blocked))) >= 0


@pytest.mark.timed
@linux
def test_a_precise_timer_is_exact_on_uvloop_and_leaves_no_descriptor() -> None:
    on_uvloop(lateness(0.001))  # the first loop opens descriptors that the process keeps
    before = descriptors()
    assert statistics.median(on_uvloop(many_late(0.001))) < 1
    assert descriptors() == before
