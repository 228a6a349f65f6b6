"""After an outage of the store one line says that it is back, whichever part of the worker noticed it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from onthedot import App
from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreUnavailable
from onthedot.stores.contract import ClaimRequest, Hint, Limit, Outcome, TurnResult
from onthedot.stores.memory import MemoryStore
from tests.support.waits import every_chance, until


class AwayStore(MemoryStore):
    """Raises in one verb while it is away."""

    away = ""
    failed = 0

    def _check(self, verb: str) -> None:
        if verb == self.away:
            self.failed += 1
            raise StoreUnavailable("down")

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        self._check("turn")
        return await super().turn(session, outcomes, request)

    async def put_limits(self, limits: Sequence[Limit], replaces: Sequence[Limit] = ()) -> bool:
        self._check("put_limits")
        return await super().put_limits(limits, replaces)

    async def hints(self, session: str) -> AsyncIterator[Hint]:
        self._check("hints")
        async for hint in super().hints(session):
            yield hint
            self._check("hints")


@pytest.mark.parametrize("verb", ["turn", "hints", "put_limits"])
async def test_one_line_says_that_the_store_is_back(
    app: App, clock: ManualClock, send: Any, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = AwayStore(clock)
    app.runtime.use_store(store)

    def lines() -> list[str]:
        return [message for message in caplog.messages if "the store is back after" in message]

    async with app.running():
        store.away = verb
        app.task(name="other", concurrency=3)(lambda: None)
        await send.enqueue("ann")
        await until(lambda: store.failed)
        for _ in range(5):
            clock.advance(5_000)
            await every_chance()
        assert (len(lines()), "trying again" in caplog.text) == (0, True)
        store.away = ""
        for _ in range(5):
            clock.advance(5_000)
            await every_chance()
        await until(lambda: lines())
        assert await (await send.enqueue("bob")) == "hello, bob"
    assert len(lines()) == 1
