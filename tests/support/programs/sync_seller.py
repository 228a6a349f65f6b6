"""A worker whose sync tasks stop at a given point, to be killed there: sync_seller.py URL NAME FILE EXECUTOR.

Each task inserts a row of the user and completes itself in one transaction. In its first attempt it writes to the
file when it has reached its point, and waits there.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from onthedot import App, current_task
from tests.support.sync_callers import WAYS

POINTS = ("effect", "complete", "commit")  # the task stops after one of these
URL, NAME, FILE, EXECUTOR = sys.argv[1:]
SLOTS = 1 if URL.startswith("sqlite:") else len(WAYS) * len(POINTS)  # a file has one writer

app: App[None] = App(NAME, store=URL, concurrency=SLOTS, max_workers=SLOTS)


@app.task(executor=EXECUTOR)
def sell(number: int, way: str, stops_after: str) -> None:
    def point(name: str) -> None:
        if name == stops_after and current_task().attempt == 1:
            with Path(FILE).open("a") as file:
                file.write(f"{number}\n")
            threading.Event().wait()

    ways = {each.__name__: each for each in WAYS}
    with ways[way](URL.partition("?")[0]) as caller:
        caller.run(f"INSERT INTO sale VALUES ({number:d})")
        point("effect")
        current_task().sync.complete(number, connection=caller.connection)
        point("complete")
        caller.commit()
        point("commit")


if __name__ == "__main__":
    app.run()
