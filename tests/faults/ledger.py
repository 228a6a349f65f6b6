"""What was acknowledged and what was done, written outside of the system that is tried."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onthedot import current_task


@dataclass(frozen=True)
class Entry:
    what: Literal["begin", "end"]
    uuid: str
    attempt: int
    fence: int
    pid: int
    at: float  # seconds of the monotonic clock, which all processes of a machine share


class Ledger:
    """Lines in a file, each written by one call: what a kill -9 has let through is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, what: str, uuid: str, attempt: int = 0, fence: int = 0) -> None:
        line = f"{what} {uuid} {attempt} {fence} {os.getpid()} {time.monotonic():.6f}\n"
        os.write(self._fd, line.encode())

    def entries(self) -> list[Entry]:
        rows = (line.split() for line in self.path.read_text().splitlines())
        return [Entry(w, u, int(a), int(f), int(p), float(t)) for w, u, a, f, p, t in rows]  # type: ignore[arg-type]

    def close(self) -> None:
        os.close(self._fd)


async def write_down(seconds: float) -> None:
    """The run of the task that calls it, in the ledger that LEDGER names: its begin, and after a time its end."""
    ledger, context = Ledger(Path(os.environ["LEDGER"])), current_task()
    try:
        ledger.write("begin", context.uuid, context.attempt, context.fence)
        await asyncio.sleep(seconds)
        ledger.write("end", context.uuid, context.attempt, context.fence)
    finally:
        ledger.close()


def extra_runs(entries: list[Entry]) -> int:
    begun = Counter(entry.uuid for entry in entries if entry.what == "begin")
    return sum(count - 1 for count in begun.values())


def taken_over_after(entries: list[Entry], pid: int, died: float) -> list[float]:
    """For each run that the dead process had begun and not ended: seconds until another process began it."""
    ended = {(entry.uuid, entry.fence) for entry in entries if entry.what == "end"}
    left = [e for e in entries if e.what == "begin" and e.pid == pid and (e.uuid, e.fence) not in ended]
    again = [
        min((e.at for e in entries if e.what == "begin" and e.uuid == lost.uuid and e.fence > lost.fence), default=None)
        for lost in left
    ]
    return [at - died for at in again if at is not None]


def crowds(entries: list[Entry], group_of: Mapping[str, object]) -> dict[object, int]:
    """By group: how many of it ran at the same time, at most. A run that wrote no end has none."""
    alive: Counter[object] = Counter()
    most: dict[object, int] = {}
    for entry in sorted(entries, key=lambda e: (e.at, e.what == "begin")):
        group = group_of[entry.uuid]
        alive[group] += 1 if entry.what == "begin" else -1
        most[group] = max(most.get(group, 0), alive[group])
    return most


def ended_by_death(entries: list[Entry], deaths: Mapping[int, float]) -> list[Entry]:
    """With an end for each run that its process did not live to end."""
    ended = {(entry.uuid, entry.fence) for entry in entries if entry.what == "end"}
    cut = [e for e in entries if e.what == "begin" and (e.uuid, e.fence) not in ended and e.pid in deaths]
    return entries + [Entry("end", e.uuid, e.attempt, e.fence, e.pid, deaths[e.pid]) for e in cut]


def most_at_once(entries: list[Entry], uuids: set[str]) -> int:
    """How many of these ran at the same time."""
    alive, most = 0, 0
    for entry in sorted((e for e in entries if e.uuid in uuids), key=lambda e: e.at):
        alive += 1 if entry.what == "begin" else -1
        most = max(most, alive)
    return most
