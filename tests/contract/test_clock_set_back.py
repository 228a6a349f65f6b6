"""The store's clock is set back: limits continue from the new time."""

from __future__ import annotations

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Store
from tests.contract.steps import Worker, add, limit, task

HOUR = 3_600_000


@pytest.mark.parametrize(("name", "lane"), [("a", None), ("a/k", "a/k"), ("@shared", "@shared")])
async def test_rate_continues_after_the_clock_was_set_back(
    store: Store, worker: Worker, clock: ManualClock, name: str, lane: str | None
) -> None:
    await worker.heartbeat()
    await limit(store, name, rate=1)
    first, second, third = await add(store, *(task(lane=lane, at=0) for _ in range(3)))
    assert await worker.runs() == [first]
    assert await worker.runs() == []
    clock.advance(-HOUR)
    assert await worker.runs() == [], "the token is spent"
    clock.advance(1000)
    assert await worker.runs() == [second]
    clock.advance(1000)
    assert await worker.runs() == [third]
