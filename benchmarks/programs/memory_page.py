"""Tasks, worker and page of a memory store in one process: no other one sees that store.

It prints its port when all tasks are added, while their source is paused, and resumes it at the next line of its input.
"""

from __future__ import annotations

import asyncio
import os
import sys

from benchmarks.programs.onthedot_app import app
from benchmarks.programs.stopwatch import COUNT, is_done
from onthedot.web.app_site import app_site
from onthedot.web.context import AppFacts
from onthedot.web.server import listen, serving
from onthedot.web.settings import WebSettings, credentials_from


async def run() -> None:
    settings = WebSettings(credentials=credentials_from(os.environ))
    site = app_site(app, settings, AppFacts("bench", "memory", ""))
    async with app.running():
        await app.operations.pause("counted")
        await app.named("counted").enqueue_many([{}] * COUNT)
        with listen("127.0.0.1", 0) as listener:
            async with serving(site, listener):
                print(listener.getsockname()[1], flush=True)
                await asyncio.to_thread(sys.stdin.readline)
                await app.operations.resume("counted")
                while not is_done():  # noqa: ASYNC110 - the worker shall do nothing else
                    await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(run())
