"""The shared scheduler, new for each test."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from onthedot import (
    BaseTaskConsumer,
    IntervalSchedule,
    Task,
    TaskConsumerRegistry,
    TaskHandle,
    get_scheduler,
    get_scheduler_status,
)
from onthedot.clock.manual import ManualClock
from tests.support.consumers import Work
from tests.support.waits import until

PAST = datetime(2026, 1, 1, tzinfo=UTC)  # due by every clock
FIELDS = {
    "status": str, "poll_interval": int, "queue_count": int, "scheduled_count": int, "enabled_scheduled_count": int,
    "running_count": int, "is_executing": bool, "current_task_id": (str, type(None)), "updated_at": str,
}  # fmt: skip
EMPTY = {
    "status": "stopped", "poll_interval": 10, "queue_count": 0, "scheduled_count": 0, "enabled_scheduled_count": 0,
    "running_count": 0, "is_executing": False, "current_task_id": None,
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "row_b.db"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, file: Path) -> str:
    """Where the shared scheduler keeps its tasks."""
    if request.param == "sqlite":
        monkeypatch.setenv("ONTHEDOT_STORE", f"sqlite:///{file}")
    return str(request.param)


def register(*consumers: BaseTaskConsumer) -> None:
    for consumer in consumers:
        TaskConsumerRegistry.register(consumer)


def add(source: str, n: object = None, at: datetime = PAST) -> TaskHandle[Any]:
    return get_scheduler().add_task(Task(source, {"n": n}, at))


def shared_status() -> dict[str, Any]:
    """The eight fields with known values; checks the types of all nine."""
    status = get_scheduler_status()
    assert list(status) == list(FIELDS)
    assert [name for name, kind in FIELDS.items() if not isinstance(status[name], kind)] == []
    assert json.loads(json.dumps(status)) == status
    updated = datetime.fromisoformat(status.pop("updated_at"))
    assert updated.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - updated) < timedelta(seconds=10)
    return status


@contextmanager
def driven(clock: ManualClock) -> Iterator[None]:
    runtime = get_scheduler().runtime
    with runtime.override(replace(runtime.config, clock=clock)):
        yield


async def asleep(clock: ManualClock, seconds: float) -> None:
    """Waits until the scheduler sleeps with a timer in this many seconds; advancing the clock before has no effect."""
    await until(lambda: clock.next_timer() == clock.now() + seconds * 1000)


@pytest.fixture
def fast_thread_switches() -> Iterator[None]:
    """Threads are switched as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Ticking(Work):
    schedule = IntervalSchedule(10, overlap="allow")


class Failing(BaseTaskConsumer):
    name = "bad"
    max_retries = 1
    backoff: ClassVar = [1]

    async def consume(self, task: Task) -> None:
        if task.args["n"] != "good":
            raise ValueError("no luck")
