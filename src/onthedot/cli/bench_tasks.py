"""The tasks of ``onthedot bench``, as its worker process imports them. The name of the app is in the environment."""

from __future__ import annotations

import os
import time

from onthedot import App

app: App[None] = App(os.environ.get("ONTHEDOT_APP_NAME", "bench"))


@app.task
async def noop() -> None: ...


@app.task
async def pick_up(added: float) -> float:
    """Seconds since its add began. The monotonic clock is that of the machine, the same in all processes."""
    return time.monotonic() - added
