"""The line of a worker that is ready."""

from __future__ import annotations

from onthedot import App, BatchPolicy
from onthedot.events import Event
from onthedot.supervisor.banner import banner_line


async def test_agents_are_counted_beside_tasks() -> None:
    app = App("shop", store="memory://")

    @app.task
    async def ship() -> None: ...

    async with app.running():
        assert " · 1 task · only" in await banner_line(app)

    @app.agent("stock", consumes=("Shop.Order.Placed",))
    async def stock(event: Event) -> None: ...

    async with app.running():
        assert " · 1 task · 1 agent · only" in await banner_line(app)


async def test_task_with_batches_counts_once() -> None:
    app = App("names", store="memory://")

    @app.task(batch=BatchPolicy())
    async def names(count: int) -> list[str]:
        return ["ann"] * count

    async with app.running():
        assert " · 1 task · only" in await banner_line(app)
