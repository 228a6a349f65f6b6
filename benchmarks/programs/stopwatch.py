"""Measures how long a number of tasks takes in a worker process."""

from __future__ import annotations

import os
import time
from itertools import count
from pathlib import Path

COUNT = int(os.environ["BENCH_COUNT"])
STORE = os.environ["BENCH_STORE"]
_RESULT = Path(os.environ["BENCH_RESULT"])

_numbers = count(1)
_times: list[float] = []  # of the first and the last task


def tick() -> None:
    """Called by each task, on any thread. The last one writes the tasks per second since the first."""
    number = next(_numbers)
    if number in (1, COUNT):
        _times.append(time.perf_counter())
    if number == COUNT:
        part = _RESULT.with_suffix(".part")
        part.write_text(str((COUNT - 1) / (_times[1] - _times[0])))
        part.rename(_RESULT)


def is_done() -> bool:
    return _RESULT.exists()
