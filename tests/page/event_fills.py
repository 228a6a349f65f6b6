"""Programs that fill a shop with events; run by `Shop.run`, where `shop` is the module with the app."""

from __future__ import annotations

XSS = '<img src=x onerror="window.attacked=1"><script>window.attacked=1</script>'


def refused_events(error: str, text: str = XSS) -> str:
    """Three events that the bus refuses, run before a worker starts: its relay does not look at failed ones."""
    return f"""
from onthedot.events import Event
from onthedot.stores.contract import RelayRequest

async def main():
    photos = [("retry me", "17"), ("discard me", "18"), ({text!r}, {text!r})]
    async with shop.app:
        await shop.app.publish(*[
            Event("Shop.Photo.Added", {{"data": data, "password": "hunter2"}}, aggregate_id=key, id=f"photo-{{number}}")
            for number, (data, key) in enumerate(photos, 1)
        ])
        store = shop.app.runtime.store
        await store.heartbeat("refusing", b"{{}}", 10_000)
        result = await store.relay("refusing", (), {{}}, RelayRequest())
        await store.relay("refusing", (), {{each.seq: {error!r} for each in result.events}}, None)
        await store.close_session("refusing")
"""


def events(text: str = XSS) -> str:
    """Orders, of which the agent rejects two; and a resume handle that has one of its two events."""
    return f"""
from onthedot.events import Event

async def main():
    async with shop.app:
        orders = [(17, "acme", ""), (18, "globex", ""), (19, "acme", {text!r})]
        expected = {{"Shop.Order.Placed": 1, "Shop.Order.Packed": 1}}
        await shop.app.expect(expected, correlation_id="cart-18", timeout=3600)
        await shop.app.publish(*[
            Event(
                "Shop.Order.Placed",
                {{"order": order, "customer": customer, "note": note, "password": "hunter2"}},
                aggregate_id=str(order),
                id=f"order-{{order}}",
                correlation_id=f"cart-{{order}}",
                headers={{"x-shop": {text!r}}},
            )
            for order, customer, note in orders
        ])
"""
