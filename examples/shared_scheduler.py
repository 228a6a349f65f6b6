"""The shared scheduler of a process: one task at a time, with schedules and a status.

python examples/shared_scheduler.py
"""

from __future__ import annotations

import asyncio
import logging
import sys

from onthedot import (
    BaseTaskConsumer,
    IntervalSchedule,
    Task,
    TaskConsumerRegistry,
    get_scheduler,
    get_scheduler_status,
    start_scheduler,
    stop_scheduler,
)


class Greet(BaseTaskConsumer):
    name = "greet"

    async def consume(self, task: Task) -> None:
        if not task.args["to"]:
            raise ValueError("nobody to greet")
        print("hello", task.args["to"], flush=True)


class Tick(BaseTaskConsumer):
    name = "tick"
    schedule = IntervalSchedule(0.2)

    def consume(self, task: Task) -> None:  # a sync consumer runs in a thread
        print(task.source, flush=True)


def show() -> None:
    status = get_scheduler_status()
    schedules = f"{status['enabled_scheduled_count']} of {status['scheduled_count']} schedules are enabled"
    print(f"{status['status']}: {status['queue_count']} wait, {schedules}", flush=True)


async def main() -> None:
    show()
    TaskConsumerRegistry.register(Greet())
    TaskConsumerRegistry.register(Tick())
    for name in ("ann", "bob", ""):
        get_scheduler().add_task(Greet().produce({"to": name}))
    await start_scheduler()
    show()
    await asyncio.sleep(0.7)
    await stop_scheduler()
    for task in await get_scheduler().find(state="failed"):
        if task.error is not None:
            print(f"failed: {task.source}, {task.error.type}: {task.error.message}", flush=True)
    show()


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s", stream=sys.stdout)
    asyncio.run(main())
