"""A script that starts a worker and then only waits, while a thread adds tasks: sleeps_on.py METHOD"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time

from onthedot import App, TaskFailed
from onthedot.executors.processes import Processes

logging.disable()
app = App("sleeps", store="memory://", executors={"own": Processes(2, method=sys.argv[1])})


class Own(Exception):
    pass


@app.task(executor="own")
def double(n: int) -> tuple[int, int]:
    return n * 2, os.getpid()


@app.task(executor="own")
def fail() -> None:
    raise Own("it did")


def add() -> None:
    doubled, pid = double.delay(21).result(timeout=20)
    error = fail.delay().exception(timeout=20)
    assert isinstance(error, TaskFailed)
    print(json.dumps({"doubled": doubled, "elsewhere": pid != os.getpid(), "error": error.error_type}))


app.start(auto=True)
adder = threading.Thread(target=add)
adder.start()
while adder.is_alive() or __name__ != "__main__":
    time.sleep(0.01)
