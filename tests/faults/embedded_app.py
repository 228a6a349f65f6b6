"""A program with an embedded worker (`app.running()`), which runs the tasks of the fault tests."""

from __future__ import annotations

import asyncio
import signal

from tests.faults.task_app import app


async def serve() -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with app.running():
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(serve())
