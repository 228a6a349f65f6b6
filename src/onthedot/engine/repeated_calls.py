"""Store calls of running tasks that are repeated until the store answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from onthedot.engine.retry_delay import RetryDelay
from onthedot.errors import StoreBusy, StoreUnavailable
from onthedot.observability.events import Observer

T = TypeVar("T")


class RepeatedCalls:
    """Repeats calls while the store cannot be reached.

    An outage of the store is no error of the task. If it lasts too long, the worker is fenced, which cancels its runs
    and with them these calls.
    """

    def __init__(self, observer: Observer, operation: str) -> None:
        self._observer = observer
        self._operation = operation

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """call: may be repeated with the same effect."""
        delay = RetryDelay()
        has_failed = False
        while True:
            try:
                answer = await call()
            except (StoreUnavailable, StoreBusy) as error:
                has_failed = True
                self._observer.store_failed(self._operation, error)
                await asyncio.sleep(delay.next() / 1000)
                continue
            if has_failed:
                self._observer.store_recovered(self._operation)
            return answer
