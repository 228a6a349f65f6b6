"""A call that is cancelled at any step leaves its connection usable: the next call gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest

from onthedot.stores.contract import ClaimRequest, NewTask, SlotPool
from onthedot.stores.postgres import PostgresStore
from tests.support.services.postgres import Service
from tests.unit.stores.postgres.shop import opened, states

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]
LEASE = 60_000
MOST = 100  # awaits of a call
Call = Callable[[PostgresStore], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "read": lambda store: store.get(["u1"]),
    "add": lambda store: store.add([NewTask("u1", "a", b"")]),
    "turn": lambda store: store.turn("w", [], ClaimRequest(1, [SlotPool(0, {"a": 0})])),
    "heartbeat": lambda store: store.heartbeat("w", b"", LEASE),
}


class CancelledAt:
    """Awaits a call and cancels the current task at its nth suspension."""

    def __init__(self, call: Awaitable[Any], number: int) -> None:
        self._call = call
        self._left = number
        self.is_reached = False

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._call.__await__()
        try:
            suspended = next(steps)
            while True:
                self._left -= 1
                if self._left == 0:
                    self.is_reached = True
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()
                try:
                    answer = yield suspended
                except BaseException as error:
                    suspended = steps.throw(error)
                else:
                    suspended = steps.send(answer)
        except StopIteration as end:
            return end.value


async def run(call: CancelledAt) -> Any:
    return await call


@pytest.mark.parametrize("is_connected", [True, False])
@pytest.mark.parametrize("name", CALLS)
async def test_cancelled_call_does_not_affect_the_next(
    postgres: Service, named: str, name: str, is_connected: bool
) -> None:
    """Cancelled at its first await, at its second, … until it is answered before."""
    async with opened(postgres, named) as store:
        await store.add([NewTask("u1", "a", b"")])
        await store.heartbeat("w", b"", LEASE)
        for number in range(1, MOST):
            await CALLS[name](store)
            if not is_connected:
                for connection in store.connections.all:
                    connection.drop()
            call = CancelledAt(CALLS[name](store), number)
            task = asyncio.create_task(run(call))
            await asyncio.wait([task])
            assert task.cancelled() or task.exception() is None
            assert await states(store, "u1", "u2") == ["ready", None]
            assert [added.fresh for added in await store.add([NewTask("u1", "a", b"")])] == [False]
            assert (await store.heartbeat("w", b"", LEASE)).alive
            if not call.is_reached:
                break
        else:
            pytest.fail(f"the call was not answered within {MOST} awaits")
        assert number > (1 if is_connected else 3)
