"""The app of the chaos run. As a program: one worker of it, or with the argument `produce` the producer.

The environment variables STORE and RUN_LOG name the store and the file for the runs; DIRECT is the URL without a proxy.
The producer appends the uuid of each acknowledged task to RUN_LOG.acknowledged, synced; and of each refused one, and
whether it was in the store then, to RUN_LOG.refused. It ends when RUN_LOG.stop exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from random import Random

from onthedot import App, AtMost, StoreError, current_task, group
from onthedot.model.uuid7 import new_uuid
from tests.faults.run_log import RunLog

SLOTS = 8
LEASE = 4.0  # seconds
PRODUCERS = 8
MEMBERS = 4  # of a flow
app = App("chaos", store=os.environ.get("STORE", "memory://"), concurrency=SLOTS, stop_timeout=5, poll_interval=5)


async def run_for(seconds: float) -> None:
    """Logs begin and end of the current run; a cancelled one ends as well."""
    run_log = RunLog(Path(os.environ["RUN_LOG"]))
    context = current_task()
    run_log.write("begin", context.uuid, context.attempt, context.fence)
    try:
        await asyncio.sleep(seconds)
    finally:
        run_log.write("end", context.uuid, context.attempt, context.fence)
        run_log.close()


@app.task(max_crashes=1000)
async def short() -> None:
    await run_for(0.02)


@app.task(max_crashes=1000)
async def long() -> None:
    """Outlives a lease."""
    await run_for(1.5 * LEASE)


@app.task(max_crashes=1000)
async def parent() -> None:
    """Adds one child with its outcome."""
    await run_for(0.02)
    current_task().spawn(child.s(current_task().uuid))


@app.task(max_crashes=1000)
async def child(of: str) -> None:
    await run_for(0.02)


@app.task(max_crashes=1000)
async def last(numbers: list[int]) -> None:
    """The end of a flow: its members have ended, each once."""
    assert numbers == [*range(MEMBERS)]
    await run_for(0.02)


@app.task(max_crashes=1000)
async def member(number: int) -> int:
    await run_for(0.02)
    return number


@app.task(max_crashes=1000, limits=[AtMost(2, by="key")])
async def keyed(key: int) -> None:
    await run_for(0.05)


@app.task(max_crashes=1000, max_retries=3, backoff=0.2)
async def retried() -> None:
    if current_task().attempt == 1:
        raise ValueError("on its first attempt, which is not logged")
    await run_for(0.02)


@app.task(max_crashes=1000, concurrency=6)
async def limited() -> None:
    await run_for(0.05)


class Producer:
    def __init__(self, random: Random, path: Path) -> None:
        self._random = random
        self._stop = path.with_suffix(".stop")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._acknowledged = os.open(path.with_suffix(".acknowledged"), flags)
        self._refused = os.open(path.with_suffix(".refused"), flags)
        self._direct = App("chaos", store=os.environ["DIRECT"])

    async def run(self) -> None:
        async with app, self._direct, asyncio.TaskGroup() as group:
            for _ in range(PRODUCERS):
                group.create_task(self._produce())

    async def _produce(self) -> None:
        while not self._stop.exists():
            uuid = new_uuid()
            try:
                await self._add(uuid)
            except StoreError as error:
                (record,) = await self._direct.runtime.store.get([uuid])
                stored = getattr(error, "stored", None)
                os.write(self._refused, f"{uuid} {int(record is not None)} {stored}\n".encode())
            else:
                os.write(self._acknowledged, f"{uuid}\n".encode())
                os.fsync(self._acknowledged)
            await asyncio.sleep(self._random.uniform(0, 0.03))

    async def _add(self, uuid: str) -> None:
        chance = self._random.random()
        if chance < 0.005:
            await long.options(uuid=uuid).enqueue()
        elif chance < 0.2:
            await parent.options(uuid=uuid).enqueue()
        elif chance < 0.35:
            await keyed.options(uuid=uuid).enqueue(self._random.randrange(5))
        elif chance < 0.45:
            await retried.options(uuid=uuid).enqueue()
        elif chance < 0.55:
            await limited.options(uuid=uuid).enqueue()
        elif chance < 0.65:
            await short.options(uuid=uuid, after=self._random.uniform(0, 2)).enqueue()
        elif chance < 0.67:
            handle = await short.options(uuid=uuid, after=self._random.uniform(0, 2)).enqueue()
            await asyncio.sleep(self._random.uniform(0, 1))
            await self._cancel(handle.uuid)
        elif chance < 0.72:
            await (group(member.s(number) for number in range(MEMBERS)) | last).enqueue(uuid=uuid)
        else:
            await short.options(uuid=uuid).enqueue()

    async def _cancel(self, uuid: str) -> None:
        with contextlib.suppress(StoreError):  # it runs then
            await app.cancel(uuid)


if __name__ == "__main__":
    if sys.argv[1:] == ["produce"]:
        seed = int(os.environ.get("SEED", "0"))
        asyncio.run(Producer(Random(seed), Path(os.environ["RUN_LOG"])).run())
    else:
        app.run()
