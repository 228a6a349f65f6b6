"""The due tasks that a worker with ``--burst`` runs, and those that it leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set

from onthedot.errors import shortened_list
from onthedot.observability.logs import LogObserver
from onthedot.operations.humanize import plural
from onthedot.stores.contract import State


class DueTasks:
    """known: the sources that this worker runs."""

    def __init__(self, tally: Mapping[tuple[str, State], int], known: Set[str], paused: Set[str]) -> None:
        self._known = known
        self._paused = paused
        self._due: Counter[str] = Counter()
        for (source, state), count in tally.items():
            if count and state in ("ready", "parked"):
                self._due[source] += count

    @property
    def runnable(self) -> bool:
        return bool(self._due.keys() & self._known - self._paused)

    def report_left(self, logs: LogObserver) -> None:
        if not self._due:
            return
        left = [f"{source} {count} ({self._reason(source)})" for source, count in sorted(self._due.items())]
        count = plural(self._due.total(), "due task")
        logs.scheduler.warning("--burst leaves %s: %s", count, shortened_list(left))

    def _reason(self, source: str) -> str:
        return "paused" if source in self._paused else "this worker does not run it"
