"""A script with a main guard: guarded.py METHOD"""

from __future__ import annotations

import json
import os
import sys

from onthedot import App, TaskFailed
from onthedot.executors.processes import Processes

app = App("guarded", store="memory://", executors={"own": Processes(2, method=sys.argv[1])})


class Own(Exception):
    pass


@app.task(executor="own")
def double(n: int) -> tuple[int, int]:
    return n * 2, os.getpid()


@app.task(executor="own", reject_on=(Own,))
def fail() -> None:
    raise Own("it did")


def main() -> None:
    doubled, pid = double.delay(21).result(timeout=20)
    error = fail.delay().exception(timeout=20)
    assert isinstance(error, TaskFailed)
    print(json.dumps({"doubled": doubled, "elsewhere": pid != os.getpid(), "error": error.error_type}))


if __name__ == "__main__":
    import logging

    logging.disable()
    with app.background():
        main()
