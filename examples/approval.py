"""A refund that a person approves: the task waits for a signal, which a web page or the command line sends.

python examples/approval.py
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from onthedot import App, current_task

app = App("approval", store="memory://")


@dataclass
class Decision:
    by: str
    approved: bool


async def pay(customer: str, amount: int) -> str:
    return f"{amount} to {customer}"


@app.task
async def refund(customer: str, amount: int) -> str:
    ctx = current_task()
    if amount > 100:
        decision = await ctx.wait_for("decision", timeout=7 * 86_400, type=Decision)
        if not decision.approved:
            return f"refused by {decision.by}"
    return await ctx.step("pay", pay, customer, amount)


async def decide(uuid: str, by: str, approved: bool) -> bool:
    """The handler of a web page would do this. Sent twice, as browsers do, it is stored once."""
    return await app.ahandle(uuid).signal("decision", Decision(by, approved), id=f"decision of {by}")


async def main() -> None:
    async with app.running():
        small = await refund.enqueue("ann", 50)
        large = await refund.enqueue("bob", 500)
        other = await refund.enqueue("eve", 900)
        print("small:", await small)
        print("stored:", await decide(large.uuid, "joe", True), await decide(large.uuid, "joe", True))
        await decide(other.uuid, "joe", False)
        print("large:", await large)
        print("other:", await other)


if __name__ == "__main__":
    asyncio.run(main())
