"""A script that declares a task after it has added another one."""

from __future__ import annotations

import json
import logging

from onthedot import App

logging.disable()
app = App("late", store="memory://")
app.start(auto=True)


@app.task(executor="process")
def double(n: int) -> int:
    return n * 2


first = double.delay(21)


@app.task(executor="process")
def late() -> None:
    pass


print(json.dumps(first.result(timeout=20)))
print(json.dumps(late.delay().exception(timeout=20).message))
