"""The gauges of agents: events in flight, and how far their partitions are behind."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from onthedot import App
from onthedot.events import Event
from onthedot.model.figures import Figures
from onthedot.observability.meter import Meter
from onthedot.supervisor.worker_figures import WorkerFigures
from tests.support.waits import until

PLACED = "Shop.Order.Placed"
TOPIC = "shop.order.events"
IN_FLIGHT = "onthedot_agent_in_flight"
LAG = "onthedot_agent_lag"


def gauges(figures: Figures, name: str) -> dict[tuple[str, ...], float]:
    """The values of a gauge, by its labels."""
    return {sample.labels: sample.value for sample in figures.samples if sample.metric == name}


async def read_lag(figures: WorkerFigures, expected: int) -> dict[tuple[str, ...], float]:
    """As it is read first: the next look is ten seconds later."""
    watching = asyncio.create_task(figures.watch())
    await until(lambda: bool(found := gauges(figures.read(), LAG)) and sum(found.values()) == expected)
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    return gauges(figures.read(), LAG)


async def test_events_in_flight_and_lag_of_an_agent_are_gauges() -> None:
    app: App[None] = App("shop", store="memory://")
    figures = WorkerFigures(app.runtime, Meter())
    gate = asyncio.Event()

    @app.agent("shipper", consumes=(PLACED,))
    async def shipper(event: Event[dict[str, int]]) -> None:
        await gate.wait()

    async with app.running():
        assert gauges(figures.read(), IN_FLIGHT) == {("shipper",): 0}
        await app.publish(*(Event(PLACED, {"n": n}, aggregate_id="17") for n in range(3)))
        await until(lambda: gauges(figures.read(), IN_FLIGHT) == {("shipper",): 3})
        behind = await read_lag(figures, 3)
        assert {labels[:2] for labels in behind} == {("shipper", TOPIC)}
        gate.set()
        await until(lambda: gauges(figures.read(), IN_FLIGHT) == {("shipper",): 0})
        (component,) = [each for each in app.runtime.components.all if each.name == "agent shipper"]

        async def is_committed() -> bool:
            return not sum((await component.lag()).values())  # type: ignore[attr-defined]

        await until(is_committed)
        await read_lag(figures, 0)
    app.runtime.close()
