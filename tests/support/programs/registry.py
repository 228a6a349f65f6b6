"""A consumer of the global registry that runs in a process; children do not create the Scheduler."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from onthedot import BaseTaskConsumer, Scheduler, Task, TaskConsumerRegistry


class Email(BaseTaskConsumer):
    name = "email"
    executor = "process"

    def consume(self, task: Task) -> Any:
        return [task.args, os.getpid()]


TaskConsumerRegistry.register(Email())


async def main() -> None:
    scheduler = Scheduler()
    await scheduler.start()
    handle = scheduler.add_task(Email().produce({"to": "x"}))
    args, pid = await asyncio.to_thread(handle.result, 20)
    print(json.dumps([args, pid != os.getpid()]))
    await scheduler.stop()


if __name__ == "__main__":
    asyncio.run(main())
