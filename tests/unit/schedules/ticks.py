"""A scheduled task that records its runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from onthedot import App, current_task
from onthedot.stores.contract import FireRequest, Store
from tests.unit.schedules.test_api import BEGIN, HOUR


def ticking(app: App, schedule: object, do: Callable[[], Any] | None = None, **options: Any) -> list[datetime]:
    """Records the nominal time of each run."""
    nominal: list[datetime] = []

    @app.task(name="tick", schedule=schedule, **options)
    async def tick() -> None:
        nominal.append(current_task().scheduled_for)
        if do is not None:
            await do()

    return nominal


def hours(*numbers: float) -> list[datetime]:
    return [BEGIN + number * HOUR for number in numbers]


def watch(store: Store, seen: Callable[[FireRequest], object]) -> None:
    """Calls back before every firing."""
    fire = store.fire

    async def watched(fires: Sequence[FireRequest]) -> Sequence[bool]:
        for each in fires:
            answer = seen(each)
            if asyncio.iscoroutine(answer):
                await answer
        return await fire(fires)

    store.fire = watched  # type: ignore[method-assign]
