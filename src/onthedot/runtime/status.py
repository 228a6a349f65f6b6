"""The answer of ``status()``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from onthedot.client.status_counts import StatusSnapshot
from onthedot.engine.lifecycle import Status
from onthedot.engine.run import Run
from onthedot.engine.worker import Worker


def status_fields(
    status: Status, worker: Worker | None, counts: StatusSnapshot, poll_interval: float
) -> dict[str, Any]:
    """Plain values under fixed names, as JSON has them; ``get_scheduler_status()`` documents them."""
    runs: Sequence[Run] = ()
    last_error: str | None = None
    if worker is not None and status in ("running", "stopping"):
        runs = worker.runs
    if worker is not None and worker.last_error is not None:
        last_error = f"{type(worker.last_error).__name__}: {worker.last_error}"
    if poll_interval.is_integer():
        poll_interval = int(poll_interval)
    longest = min(runs, key=lambda run: run.started, default=None)
    return {
        "status": status,
        "poll_interval": poll_interval,
        "queue_count": counts.ready,
        "scheduled_count": counts.schedules,
        "enabled_scheduled_count": counts.enabled,
        "running_count": len(runs),
        "is_executing": bool(runs),
        "current_task_id": None if longest is None else longest.lease.uuid,
        "updated_at": datetime.now(UTC).isoformat(),
        "delayed_count": counts.delayed,
        "last_error": last_error,
    }
