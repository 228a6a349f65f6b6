"""Limits per customer, and one task instead of many equal ones.

python examples/customers.py
"""

from __future__ import annotations

import asyncio
from collections import Counter

from onthedot import App, AtMost, as_completed

app = App("customers", store="memory://")
running: Counter[str] = Counter()
most: Counter[str] = Counter()


@app.task(limits=[AtMost(2, by="customer")])
async def export(customer: str, part: int) -> tuple[str, int]:
    running[customer] += 1
    most[customer] = max(most[customer], running[customer])
    await asyncio.sleep(0.01)
    running[customer] -= 1
    return customer, part


@app.task(unique="{customer}", on_conflict="replace")
async def refresh(customer: str, reason: str) -> str:
    return f"{customer} refreshed: {reason}"


async def main() -> None:
    async with app.running():
        calls = [{"customer": customer, "part": part} for part in range(10) for customer in ("acme", "globex")]
        handles = await export.enqueue_many(calls)
        done = Counter([(await handle)[0] async for handle in as_completed(handles)])
        print("exported", dict(sorted(done.items())), "at most", dict(sorted(most.items())), "at once")

        later = refresh.options(after=0.3)  # the last of several changes counts
        changes = [await later.enqueue("acme", reason) for reason in ("new logo", "new address", "new name")]
        print("added", [change.added for change in changes])
        print(await changes[0])


if __name__ == "__main__":
    asyncio.run(main())
