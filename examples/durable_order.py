"""An order that takes three weeks: charge, ship, wait a fortnight, ask for a review. A test turns the clock.

python examples/durable_order.py
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from onthedot import App, current_task
from onthedot.testing import TestApp

app = App("shop")
done: list[str] = []


@dataclass
class Receipt:
    number: int
    amount: int


async def charge(order: int, amount: int) -> Receipt:
    done.append(f"charge {amount}")
    return Receipt(order * 100, amount)


async def ship(receipt: Receipt) -> str:
    done.append(f"ship {receipt.number}")
    return "DHL-7"


async def mail(text: str) -> None:
    done.append(f"mail: {text}")


@app.task(max_retries=5, keep_result=timedelta(days=30))
async def order(number: int, amount: int) -> str:
    ctx = current_task()
    receipt = await ctx.step("charge", charge, number, amount)
    parcel = await ctx.step("ship", ship, receipt)
    try:
        await ctx.wait_for("delivered", timeout=timedelta(days=7))
    except TimeoutError:
        await ctx.step("search", mail, f"where is {parcel}?")
        return "lost"
    await ctx.sleep(timedelta(days=14))
    await ctx.step("review", mail, "did you like it?")
    return "reviewed"


if __name__ == "__main__":
    with TestApp(app) as test:
        first = order.delay(1, 30)
        second = order.delay(2, 50)
        test.sync.advance(days=3)
        print(first.state(), second.state())
        first.signal("delivered")
        test.sync.advance(days=5)
        print(first.state(), second.state(), second.result())
        test.sync.advance(days=10)
        print(first.result())
        print(done)
