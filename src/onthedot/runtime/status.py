"""The answer of ``status()``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from onthedot.client.status_counts import StatusSnapshot
from onthedot.engine.lifecycle import Status
from onthedot.engine.worker import Worker


def status_fields(
    status: Status, worker: Worker | None, counts: StatusSnapshot, poll_interval: float
) -> dict[str, Any]:
    """Plain values under fixed names, as JSON has them; ``get_scheduler_status()`` documents them."""
    runs = []
    if worker is not None and status in ("running", "stopping"):
        runs = list(worker.runs)
    longest = min(runs, key=lambda run: run.started, default=None)
    error = None if worker is None else worker.last_error
    return {
        "status": status,
        "poll_interval": int(poll_interval) if poll_interval.is_integer() else poll_interval,
        "queue_count": counts.ready,
        "scheduled_count": counts.schedules,
        "enabled_scheduled_count": counts.enabled,
        "running_count": len(runs),
        "is_executing": bool(runs),
        "current_task_id": None if longest is None else longest.lease.uuid,
        "updated_at": datetime.now(UTC).isoformat(),
        "delayed_count": counts.delayed,
        "last_error": None if error is None else f"{type(error).__name__}: {error}",
    }
