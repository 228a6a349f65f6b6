"""The figures of a fault run, in one line that is the same for all of them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from onthedot import App
from onthedot.stores.contract import BATCH, Record
from tests.faults.run_log import RunEntry, extra_runs
from tests.support.app_access import call_store

ENDED = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class FaultReport:
    """recovery: seconds from each fault to the next start, or to the end of new work, per affected task or fault."""

    run: str
    acknowledged: int
    lost: int
    extra_runs: int
    stale_settles: int
    begun_twice: int
    recovery: Sequence[float]

    def __str__(self) -> str:
        times = "nothing to recover"
        if self.recovery:
            p50 = statistics.median(self.recovery)
            times = f"recovery p50 {p50:.3f} s, max {max(self.recovery):.3f} s of {len(self.recovery)}"
        return (
            f"{self.run}: {self.acknowledged} tasks acknowledged, {self.lost} lost, {self.extra_runs} extra runs, "
            f"{self.stale_settles} stale settles accepted, {times}"
        )

    def check(self, most_extra_runs: int) -> None:
        """Fails if an acknowledged task is lost, a stale lease settled, or a lease began twice."""
        assert self.lost == 0, self
        assert self.stale_settles == 0, self
        assert self.begun_twice == 0, self
        assert self.extra_runs <= most_extra_runs, self


def report_faults(
    run: str, app: App[Any], acknowledged: Collection[str], entries: Sequence[RunEntry], recovery: Sequence[float]
) -> FaultReport:
    """Compares the acknowledged tasks and the run log with the store, after it has drained, and prints the line."""
    records = read_records(app, acknowledged)
    begun = [entry for entry in entries if entry.event == "begin"]
    leases = Counter((entry.uuid, entry.fence) for entry in begun)
    last_fence: dict[str, int] = {}
    for entry in begun:
        last_fence[entry.uuid] = max(entry.fence, last_fence.get(entry.uuid, 0))
    ended = [record for record in records.values() if record is not None and record.state in ENDED]
    report = FaultReport(
        run,
        acknowledged=len(acknowledged),
        lost=len(records) - len(ended),
        extra_runs=extra_runs(list(entries)),
        stale_settles=sum(record.history.settled_fence < last_fence.get(record.uuid, 0) for record in ended),
        begun_twice=sum(number > 1 for number in leases.values()),
        recovery=recovery,
    )
    print(f"\n{report}", flush=True)
    return report


def read_records(app: App[Any], uuids: Collection[str]) -> dict[str, Record | None]:
    found: dict[str, Record | None] = {}
    ordered = list(uuids)
    for start in range(0, len(ordered), BATCH):
        batch = ordered[start : start + BATCH]
        found |= zip(batch, call_store(app, lambda store, batch=batch: store.get(batch)), strict=True)
    return found
