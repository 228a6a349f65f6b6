"""The meter counts what relay, agents and callback service do."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from onthedot import App
from onthedot.events import Event, Events
from onthedot.observability.meter import Meter
from tests.unit.observability.test_meter import counts, value

PLACED = "Shop.Order.Placed"
SHIPPED = "Shop.Order.Shipped"
TOPIC = "shop.orders"


def order(number: int, event_type: str = PLACED) -> Event[dict[str, int]]:
    return Event(event_type, {"number": number}, aggregate_id=str(number), correlation_id=f"c{number}")


def test_events_are_counted_from_the_outbox_to_the_waiter() -> None:
    app = App("shop", store="memory://", events=Events(results=(SHIPPED,), topics={"Shop.Order.*": TOPIC}))
    meter = Meter()
    app.runtime.use(replace(app.runtime.config, observers=(meter,)))

    @app.agent(id="shipper", consumes=[PLACED], max_retries=0)
    async def ship(event: Event[dict[str, int]]) -> Event[dict[str, int]]:
        if event.payload["number"] == 2:
            raise ValueError("no such order")
        return event.reply(SHIPPED, {"number": event.payload["number"]})

    async def main() -> None:
        async with app.running():
            handle = await app.expect({SHIPPED: 1}, correlation_id="c1", timeout=20)
            await app.publish(order(1), order(2))
            await handle.wait()
            async with asyncio.timeout(20):
                while value(meter.figures(), "onthedot_outbox_sent_total", f"{TOPIC}.DLT") < 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    asyncio.run(main())
    figures = meter.figures()
    assert value(figures, "onthedot_agent_events_total", "shipper", "done") == 1
    assert value(figures, "onthedot_agent_events_total", "shipper", "failed") == 1
    assert value(figures, "onthedot_dead_letters_total", "shipper") == 1
    assert value(figures, "onthedot_outbox_sent_total", TOPIC) == 3
    assert value(figures, "onthedot_relay_buckets") == 16
    assert sum(counts(figures, "onthedot_resume_seconds")) == 1
    assert sum(counts(figures, "onthedot_relay_send_seconds")) >= 2
