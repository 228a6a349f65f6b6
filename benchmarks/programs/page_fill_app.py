"""Adds to a filled store what the pages of an operator show beside it, and writes the ids of it as JSON.

Tasks that run, are scheduled and were cancelled, a flow, and a batch. No worker runs, so they stay as they are.
"""

from __future__ import annotations

import asyncio
import json
import os

from onthedot import App, BatchPolicy, SizeTable, group
from onthedot.stores.contract import ClaimRequest, SlotPool

RUNNING = 100
OTHERS = 1000  # scheduled, cancelled, and of the flow
ITEMS = 100
LEASE = 10**12  # ms
app = App("bench", store=os.environ["BENCH_STORE"])


@app.task
async def common(number: int) -> int:
    return number


@app.task
async def total(found: list[int]) -> int:
    return sum(found)


@app.task(batch=BatchPolicy(split=SizeTable({}, other=2)))
async def names(count: int) -> list[int]:
    return list(range(count))


async def main() -> None:
    async with app:
        later = common.options(after=86_400)
        await later.enqueue_many([{"number": number} for number in range(OTHERS)])
        cancelled = await later.enqueue_many([{"number": number} for number in range(OTHERS)])
        await asyncio.gather(*(handle.cancel() for handle in cancelled))
        flow = await (group(common.s(number) for number in range(OTHERS)) | total).enqueue()
        batch = await app.batch(names, count=ITEMS)
        store = app.runtime.store
        await store.heartbeat("runs", b"", LEASE)  # the last step: a flow is refused while such a session lives
        await store.turn("runs", [], ClaimRequest(1, [SlotPool(RUNNING, {"common": RUNNING})]))
        print(json.dumps({"flow": flow.uuid, "batch": batch.id}))


asyncio.run(main())
