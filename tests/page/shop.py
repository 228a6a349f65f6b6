"""An app with something to show on every page: the browser tests and the screenshots run it with real workers.

ONTHEDOT_STORE=sqlite:///shop.db onthedot worker tests/page/shop.py
"""

from __future__ import annotations

import asyncio
from datetime import time, timedelta
from typing import Any

from onthedot import App, AtMost, Reject, current_task
from onthedot.events import Event, Events

app = App("shop", events=Events(results=("Shop.Order.*",)))


class ConnectError(Exception):
    """A customer's server is down."""


@app.task(label="mail to {to}")
async def email(to: str, order: int = 0) -> str:
    await asyncio.sleep(0.02)
    return f"sent to {to}"


@app.task(label="order {order} for {customer}", max_retries=2, backoff=0.05, limits=[AtMost(50, by="customer")])
async def deliver(order: int, customer: str) -> str:
    await asyncio.sleep(0.01)
    if customer == "acme":
        raise ConnectError(f"[Errno 111] connect to hooks.{customer}.example:443: connection refused")
    if order < 0:
        raise ValueError(f"no order {order}")
    return "delivered"


@app.task(label="resize {image}", concurrency=2)
async def resize(image: str, seconds: float = 0.1) -> dict[str, int]:
    context = current_task()
    for step in range(10):
        await asyncio.sleep(seconds / 10)
        context.progress(step + 1, 10)
    return {"width": 640, "height": 480}


@app.agent("packer", consumes="Shop.Order.Placed")
async def pack(event: Event[dict[str, Any]]) -> None:
    if event.payload.get("customer") == "acme":
        raise Reject(f"no stock for order {event.payload['order']} of acme {event.payload.get('note', '')}")


@app.schedule(timedelta(seconds=10))
async def heartbeat() -> None: ...


@app.schedule(time(3, 0))
async def backup() -> None: ...
