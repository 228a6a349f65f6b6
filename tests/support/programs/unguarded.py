"""A script that acts at module level: unguarded.py METHOD"""

from __future__ import annotations

import json
import logging
import os
import sys

from onthedot import App, TaskFailed
from onthedot.executors.processes import Processes

logging.disable()
app = App("unguarded", store="memory://", executors={"own": Processes(2, method=sys.argv[1])})


class Own(Exception):
    pass


app.start(auto=True)


@app.task(executor="own")
def double(n: int) -> tuple[int, int]:
    return n * 2, os.getpid()


@app.task(executor="own")
def fail() -> None:
    raise Own("it did")


doubled, pid = double.delay(21).result(timeout=20)
error = fail.delay().exception(timeout=20)
assert isinstance(error, TaskFailed)
print(json.dumps({"doubled": doubled, "elsewhere": pid != os.getpid(), "error": error.error_type}))
