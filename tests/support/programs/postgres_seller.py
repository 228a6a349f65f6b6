"""A worker whose tasks stop at a given point, to be killed there: postgres_seller.py URL NAME FILE [on].

Each task inserts a row of the user and completes itself in one transaction. Without `on` it writes to the file when it
has reached its point, and waits there; with `on` it continues.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from onthedot import App, current_task
from tests.unit.stores.postgres.callers import DRIVERS

POINTS = ("effect", "complete", "commit")  # the task stops after one of these
WAYS = {driver.__name__: driver for driver in DRIVERS}
URL, NAME, FILE, *CONTINUES = sys.argv[1:]

app: App[None] = App(NAME, store=URL, concurrency=len(WAYS) * len(POINTS))


@app.task
async def sell(number: int, way: str, stops_after: str) -> None:
    async def point(name: str) -> None:
        if name == stops_after and not CONTINUES:
            _report(number)
            await asyncio.Event().wait()

    async with WAYS[way](URL.partition("?")[0]) as caller:
        await caller.run(f"INSERT INTO sale VALUES ({number:d})")
        await point("effect")
        await current_task().complete(number, connection=caller.connection)
        await point("complete")
        await caller.commit()
        await point("commit")


def _report(number: int) -> None:
    with Path(FILE).open("a") as file:
        file.write(f"{number}\n")


if __name__ == "__main__":
    app.run()
