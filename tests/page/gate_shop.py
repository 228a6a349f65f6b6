"""Tasks that end when somebody makes a file: for measures of the time from the end of a task to the screen.

ONTHEDOT_STORE=sqlite:///gates.db onthedot worker tests/page/gate_shop.py
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from onthedot import App

app = App("gates")


@app.task(label="gate {number}")
async def gate(folder: str, number: int) -> None:
    while not Path(folder, str(number)).exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.02)


@app.task
async def nothing() -> None: ...
