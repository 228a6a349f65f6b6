"""A process that handles messages until SIGTERM: mq_worker.py URL FILE. The file gets one line per begun message."""

from __future__ import annotations

import asyncio
import os
import sys

from onthedot.mq import MessageQueue, MQConfig

mq = MessageQueue(MQConfig(url=sys.argv[1], max_workers=int(os.environ.get("WORKERS", "5"))))


@mq.register_handler("burst")
async def handle(number: int) -> None:
    file.write(f"{number}\n")
    await asyncio.sleep(float(os.environ.get("SECONDS", "0")))


if __name__ == "__main__":
    with open(sys.argv[2], "w", buffering=1) as file:  # noqa: PTH123 - one file per process, written line by line
        asyncio.run(mq.run())
    print("stopped", mq.status["status"])
