"""A flow that waits for a handle; run in the environment of Prefect.

python prefect_flow.py run FOLDER [KEY…]     one flow run, which waits for each key in turn
python prefect_flow.py expect FOLDER         one flow run, which waits for two result events of an app on FOLDER/shop.db
python prefect_flow.py serve FOLDER          runs of the deployment ``waits/suspended``, each in a process of its own

It writes what happens to FOLDER/log. The handle of a key is complete when the file FOLDER/KEY exists.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger

from onthedot import App
from onthedot.events import Events
from onthedot.integrations.prefect import prefect_run, wait_for


class FileHandle:
    """Stands for a resume handle: the tests decide when it is complete."""

    def __init__(self, folder: Path, key: str) -> None:
        self.id = key
        self._file = folder / key
        self._folder = folder

    async def status(self) -> str:
        note(self._folder, "status", self.id)
        return "complete" if self._file.exists() else "pending"

    async def wait(self) -> Any:
        while not self._file.exists():  # noqa: ASYNC110 - another process makes the file
            await asyncio.sleep(0.02)
        return json.loads(self._file.read_text())


def note(folder: Path, what: str, value: object) -> None:
    with (folder / "log").open("a") as log:
        log.write(json.dumps({"at": time.time(), "pid": os.getpid(), "what": what, "value": value}) + "\n")


@flow(name="waits")
async def waits(folder: str, keys: list[str], suspend: bool = False) -> list[Any]:
    place = Path(folder)
    note(place, "run", prefect_run())
    get_run_logger().info("dispatched=%d", len(keys))
    results: list[Any] = []
    for key in keys:
        results.append(await wait_for(FileHandle(place, key), suspend=suspend))
        note(place, "result", results[-1])
    return results


@flow(name="expects")
async def expects(folder: str) -> list[Any]:
    place = Path(folder)
    note(place, "run", prefect_run())
    app = App("shop", store=f"sqlite:///{folder}/shop.db", events=Events(results=("Shop.Part.Created",)))
    async with app:
        handle = await app.expect({"Shop.Part.Created": 2}, correlation_id="c1", timeout=60, wakes=prefect_run())
        note(place, "handle", handle.id)
        events = await wait_for(handle)
        note(place, "result", sorted(event.payload["n"] for event in events))
    return [event.id for event in events]


if __name__ == "__main__":
    command, folder, *keys = sys.argv[1:]
    if command == "run":
        asyncio.run(waits(folder, keys))
    elif command == "expect":
        asyncio.run(expects(folder))
    else:
        waits.serve(name="suspended")
