"""Prints the resident bytes of a pending task; run in a separate process."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from pathlib import Path

from onthedot import App

app = App("bench", store="memory://")


@app.task
async def send(text: str) -> None: ...


async def main(count: int) -> float:
    text = "x" * 89  # {"text":"…"} is 100 bytes
    later = send.options(after=3600)
    await later.enqueue_many([{"text": text}] * 1000)
    before = _resident()
    for _ in range(0, count, 1000):
        await later.enqueue_many([{"text": text}] * 1000)
    return (_resident() - before) / count


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


print(asyncio.run(main(int(sys.argv[1]))))
