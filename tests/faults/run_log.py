"""A log of the runs of tasks, written outside of the system under test."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onthedot import current_task


@dataclass(frozen=True)
class RunEntry:
    event: Literal["begin", "end"]
    uuid: str
    attempt: int
    fence: int
    pid: int
    at: float  # monotonic seconds; all processes of a machine share this clock


class RunLog:
    """Lines in a file, each written by one system call, so that a kill -9 leaves no partial line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, event: str, uuid: str, attempt: int = 0, fence: int = 0) -> None:
        line = f"{event} {uuid} {attempt} {fence} {os.getpid()} {time.monotonic():.6f}\n"
        os.write(self._fd, line.encode())

    def entries(self) -> list[RunEntry]:
        rows = (line.split() for line in self.path.read_text().splitlines())
        return [RunEntry(w, u, int(a), int(f), int(p), float(t)) for w, u, a, f, p, t in rows]  # type: ignore[arg-type]

    def close(self) -> None:
        os.close(self._fd)


async def log_run(seconds: float) -> None:
    """Logs the begin of the current run to the file RUN_LOG, and after some seconds its end."""
    run_log = RunLog(Path(os.environ["RUN_LOG"]))
    context = current_task()
    try:
        run_log.write("begin", context.uuid, context.attempt, context.fence)
        await asyncio.sleep(seconds)
        run_log.write("end", context.uuid, context.attempt, context.fence)
    finally:
        run_log.close()


def extra_runs(entries: list[RunEntry]) -> int:
    begun = Counter(entry.uuid for entry in entries if entry.event == "begin")
    return sum(count - 1 for count in begun.values())


def takeover_times(entries: list[RunEntry], pid: int, died: float) -> list[float]:
    """For each run that the dead process had begun and not ended: seconds until another process began it."""
    return takeovers(entries, [(pid, died)])[pid, died]


def takeovers(entries: list[RunEntry], deaths: Sequence[tuple[int, float]]) -> dict[tuple[int, float], list[float]]:
    """The same for many deaths, by pid and time: a pid may be given to a later process."""
    ended = {(entry.uuid, entry.fence) for entry in entries if entry.event == "end"}
    begun: dict[str, list[RunEntry]] = {}
    for entry in entries:
        if entry.event == "begin":
            begun.setdefault(entry.uuid, []).append(entry)
    found: dict[tuple[int, float], list[float]] = {death: [] for death in deaths}
    times: dict[int, list[float]] = {}
    for pid, died in sorted(deaths):
        times.setdefault(pid, []).append(died)
    for runs in begun.values():
        for lost in runs:
            died_after = [died for died in times.get(lost.pid, ()) if died >= lost.at]
            later = [run.at for run in runs if run.fence > lost.fence]
            if died_after and later and (lost.uuid, lost.fence) not in ended:
                found[lost.pid, died_after[0]].append(min(later) - died_after[0])
    return found


def max_concurrent_by_group(entries: list[RunEntry], group_of: Mapping[str, object]) -> dict[object, int]:
    """By group: the largest number of concurrent runs. A run without an end counts until the last entry."""
    alive: Counter[object] = Counter()
    most: dict[object, int] = {}
    for entry in sorted(entries, key=lambda e: (e.at, e.event == "begin")):
        group = group_of[entry.uuid]
        alive[group] += 1 if entry.event == "begin" else -1
        most[group] = max(most.get(group, 0), alive[group])
    return most


def with_ends_at_death(entries: list[RunEntry], deaths: Mapping[int, float]) -> list[RunEntry]:
    """The entries, with an end for each run whose process died."""
    ended = {(entry.uuid, entry.fence) for entry in entries if entry.event == "end"}
    cut = [e for e in entries if e.event == "begin" and (e.uuid, e.fence) not in ended and e.pid in deaths]
    return entries + [RunEntry("end", e.uuid, e.attempt, e.fence, e.pid, deaths[e.pid]) for e in cut]


def max_concurrent(entries: list[RunEntry], uuids: set[str]) -> int:
    """The largest number of concurrent runs of these tasks."""
    alive = 0
    most = 0
    for entry in sorted((e for e in entries if e.uuid in uuids), key=lambda e: e.at):
        alive += 1 if entry.event == "begin" else -1
        most = max(most, alive)
    return most
