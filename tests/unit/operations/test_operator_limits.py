"""Operators who change one limit at the same moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from onthedot import StoreBusy
from onthedot.clock.manual import ManualClock
from onthedot.operations import Operations
from onthedot.stores.contract import Limit
from onthedot.stores.memory import MemoryStore


class OvertakenStore(MemoryStore):
    """Others change limits after the operator has read them, each before one try to store."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.others: list[Callable[[], Awaitable[Any]]] = []

    async def put_limits(self, limits: Sequence[Limit], replaces: Sequence[Limit] = ()) -> bool:
        if self.others:
            await self.others.pop()()
        return await super().put_limits(limits, replaces)


@pytest.fixture
def store() -> OvertakenStore:
    return OvertakenStore(ManualClock())


async def test_each_operator_keeps_what_others_set_meanwhile(store: OvertakenStore) -> None:
    mine = Operations(store, "shop")
    other = Operations(store, "shop")
    store.others = [lambda: other.limits.set("send", cap=3)]
    assert not await mine.freeze("send")
    store.others = [lambda: other.thaw("send")]
    assert not await mine.limits.pause("send", reason="deploy")
    store.others = [lambda: other.limits.resume("send")]
    assert not (await mine.limits.set("send", rate="5/s")).paused
    (limit,) = await store.limits()
    assert limit == Limit("send", cap=3, rate=5.0, burst=limit.burst, owner="operator")


async def test_operator_who_is_always_overtaken_may_try_again(store: OvertakenStore) -> None:
    operations = Operations(store, "shop")
    for cap in range(1, 30):
        limit = Limit("send", cap=cap, owner="operator")
        store.others.append(lambda limit=limit: MemoryStore.put_limits(store, [limit]))  # type: ignore[misc]
    with pytest.raises(StoreBusy, match="'send' was changed by others 10 times in a row; try again"):
        await operations.freeze("send")
