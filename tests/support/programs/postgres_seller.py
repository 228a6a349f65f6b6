"""A worker whose sales stop at a point, to be killed there: postgres_seller.py URL NAME FILE [on].

Each sale is a row of the user's and the end of its task, in one transaction. Without `on` it says in the file that it
has come to its point, and stays there; with it, nothing stops.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from onthedot import App, current_task
from tests.unit.stores.postgres.callers import DRIVERS

POINTS = ("effect", "complete", "commit")  # after which of these it stays
WAYS = {driver.__name__: driver for driver in DRIVERS}
URL, NAME, FILE, *GOES_ON = sys.argv[1:]

app: App[None] = App(NAME, store=URL, concurrency=len(WAYS) * len(POINTS))


@app.task
async def sell(number: int, way: str, stops_after: str) -> None:
    async def point(name: str) -> None:
        if name == stops_after and not GOES_ON:
            _say(number)
            await asyncio.Event().wait()

    async with WAYS[way](URL.partition("?")[0]) as caller:
        await caller.run(f"INSERT INTO sale VALUES ({number:d})")
        await point("effect")
        await current_task().complete(number, connection=caller.connection)
        await point("complete")
        await caller.commit()
        await point("commit")


def _say(number: int) -> None:
    with Path(FILE).open("a") as file:
        file.write(f"{number}\n")


if __name__ == "__main__":
    app.run()
