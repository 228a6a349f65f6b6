"""The tasks of the shop. `web.py` adds them, and runs them too."""

from __future__ import annotations

import asyncio

from onthedot import App, current_task

app = App("shop")


@app.task(label="order {number}", max_retries=3)
async def ship(number: int) -> str:
    for step in range(1, 4):
        await asyncio.sleep(0.05)
        current_task().progress(step, 3)
    return f"order {number} is on its way"
