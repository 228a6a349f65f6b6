"""The timeline of a task with a life of every kind equals what the task has written down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from onthedot.operations.timeline import TimelineSegment
from tests.faults import LONG, timeline_app
from tests.faults.server_stores import PROCESS_STORES
from tests.faults.timeline_app import order
from tests.faults.worker_processes import forked_workers, wait_for
from tests.support.app_access import call_operations
from tests.support.waits import SOON

pytestmark = [pytest.mark.fault, pytest.mark.timed, pytest.mark.timeout(300)]

PROGRAM = "tests.faults.timeline_app"
CLOSE = 0.05 if LONG else 0.5  # seconds between a segment and its effect; CI has other load
KINDS = [
    "scheduled", "pending",  # while it is paused, and then while the only slot is taken
    "running", "backoff", "running", "backoff", "running", "backoff",
    "crash", "running", "waiting", "running",
]  # fmt: skip


class Effect(NamedTuple):
    what: str
    attempt: int
    at: float


@pytest.fixture(params=list(PROCESS_STORES) if LONG else ["sqlite"])
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    with PROCESS_STORES[request.param]() as server_store:
        url = server_store.url(1)
        with timeline_app.app.override(store=url):
            yield url


def test_timeline_of_a_scripted_task_equals_its_effects(store: str, run_log_path: Path) -> None:
    operations = timeline_app.app.sync.operations.acting_as("ana")
    with forked_workers(store, run_log_path, 1, PROGRAM):
        holder = order.delay(1, seconds=1.5)
        wait_for(lambda: holder.state() == "running", 60)
        operations.pause("order", reason="vendor down")
        paused_at = time.time()
        added_at = time.time()
        handle = order.options(after=0.3).delay(2)
        wait_for(lambda: time.time() > added_at + 0.7, 60)
        operations.resume("order")
        resumed_at = time.time()
        wait_for(lambda: handle.state() == "waiting", 60)
        timeline_app.app.sync.signal("approved", {"by": "ann"})
        signalled_at = time.time()
        assert handle.result(SOON) == "sent"
        parts = call_operations(timeline_app.app, lambda found: found.timeline(handle.uuid))
    effects = [
        Effect(what, int(attempt), float(at))
        for what, attempt, at in map(str.split, run_log_path.read_text().splitlines())
    ]
    assert [part.kind for part in parts if seconds_of(part) > 0.01 or part.kind not in ("pending", "gap")] == KINDS
    assert paused_at <= added_at  # two readings of the clock in a row may be equal
    check_before_the_first_run(parts, added_at, resumed_at, effects)
    check_runs(parts, effects)
    (wait,) = [part for part in parts if part.kind == "waiting"]
    assert (wait.text, wait.worker) == ('signal "approved"', None)
    assert_close(wait.begin, next(each.at for each in effects if each.what == "wait" and each.attempt == 5))
    assert_close(wait.end, signalled_at)


def check_before_the_first_run(
    parts: list[TimelineSegment], added_at: float, resumed_at: float, effects: list[Effect]
) -> None:
    scheduled, pending = parts[:2]
    assert_close(scheduled.begin, added_at)
    assert_close(pending.begin, added_at + 0.3)
    assert_close(pending.end, effects[0].at)
    (pause,) = pending.paused
    assert (pause.user, pause.reason, pause.begin) == ("ana", "vendor down", pending.begin)
    assert_close(pause.end, resumed_at)
    assert pause.end is not None
    assert pending.end is not None
    assert pause.end < pending.end, "the limit held it back after the pause, and that is not recorded"


def check_runs(parts: list[TimelineSegment], effects: list[Effect]) -> None:
    """Three failures, a death, a run that waits, and the last one."""
    begins = [each for each in effects if each.what == "begin"]
    ends = {each.attempt: each.at for each in effects if each.what == "end"}
    runs = [part for part in parts if part.kind in ("running", "crash")]
    assert [(part.kind, part.attempt) for part in runs] == [
        ("running", 1), ("running", 2), ("running", 3), ("crash", 4), ("running", 5), ("running", 5),
    ]  # fmt: skip
    for part, effect in zip(runs, begins, strict=True):
        assert part.attempt == effect.attempt
        assert_close(part.begin, effect.at)
    for part in runs[:3]:
        assert (part.text, bool(part.worker)) == ("ConnectionError", True)
        assert_close(part.end, ends[part.attempt])
    assert runs[3].text == "its worker died"
    assert_close(runs[3].end, begins[4].at)
    assert_close(runs[5].end, ends[5])


def seconds_of(part: TimelineSegment) -> float:
    assert part.end is not None, "it has ended"
    return (part.end - part.begin).total_seconds()


def assert_close(found: datetime | None, expected: float) -> None:
    assert found is not None
    assert abs(found.timestamp() - expected) <= CLOSE
