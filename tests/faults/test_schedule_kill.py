"""kill -9 around the moment at which a schedule fires: every window has one task, and none has two."""

from __future__ import annotations

import os
import random
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from onthedot.clock.epoch import to_ms
from onthedot.operations.schedules import ScheduleInfo
from onthedot.schedules.windows import nominal_uuid
from tests.faults import scaled
from tests.faults.clockwork import app
from tests.faults.fleet import crew, wait_for
from tests.faults.ledger import Entry, Ledger, extra_runs

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

SECOND = timedelta(seconds=1)


def info() -> ScheduleInfo:
    return app.sync.schedules.get("tick")


def states() -> dict[str, str]:
    """By uuid, all there are."""
    found = app.sync.find(source="tick", limit=10_000)
    assert found.cursor is None
    return {task.uuid: task.state.value for task in found}


def wait_for_the_next_window(chance: random.Random) -> datetime:
    """Until a moment shortly before it, at it, or while its task runs."""
    at = info().next_run
    assert at is not None
    time.sleep(max(0.0, at.timestamp() + chance.uniform(-0.01, 0.05) - time.time()))
    return at


def pids() -> set[int]:
    """Of those that have started: the others would not be missed."""
    return {each.pid for each in app._runtime.portal.run_sync(lambda link: link.operations.workers())}


def given_up(entries: list[Entry]) -> set[int]:
    """Whose runs were run again."""
    begun = [entry for entry in entries if entry.what == "begin"]
    last = {entry.uuid: entry.fence for entry in sorted(begun, key=lambda entry: entry.fence)}
    return {entry.pid for entry in begun if entry.fence != last[entry.uuid]}


def test_every_window_has_one_task(ledger: Ledger, tmp_path: Path) -> None:
    every_window(ledger, f"sqlite:///{tmp_path}/clockwork.db", 4, scaled(4, 100))


def every_window(ledger: Ledger, url: str, workers: int, kills: int) -> None:
    chance, dead = random.Random(11), set[int]()
    with app.override(store=url):
        with crew(url, ledger.path, workers, "tests.faults.clockwork"):
            wait_for(lambda: bool(ledger.entries()), 30)
            begin = first_window(states())
            for _ in range(kills):
                wait_for(lambda: len(pids() - dead) > 1, 30)
                pid = chance.choice(sorted(pids() - dead))
                window = wait_for_the_next_window(chance)
                os.kill(pid, signal.SIGKILL)  # a worker of ours; its parent makes another
                dead.add(pid)
                wait_for(lambda window=window: (info().last_run or begin) >= window, 20)  # by another
            app.sync.schedules.pause("tick")
            wait_for(lambda: set(states().values()) <= {"succeeded"}, 20)
        end, found, entries = info(), states(), ledger.entries()
        assert end.last_run is not None
        windows = [begin + number * SECOND for number in range((end.last_run - begin) // SECOND + 1)]
        print(
            f"\n{len(windows)} windows, {workers} schedulers, {kills} kills: {len(found)} tasks, "
            f"{extra_runs(entries)} runs again after their worker had died over them"
        )
        assert set(found) == {nominal_uuid("tick", to_ms(at)) for at in windows}, "each window, and nothing else"
        assert set(found.values()) == {"succeeded"}
        assert (end.run_count, dict(end.skipped)) == (len(windows), {})
        assert end.next_run == windows[-1] + SECOND
        assert given_up(entries) <= dead, "a second run has a worker's death for a reason"


def first_window(found: dict[str, str]) -> datetime:
    """The uuid of a window begins with its time."""
    ms = min(int(uuid.replace("-", "")[:12], 16) for uuid in found)
    return datetime.fromtimestamp(ms / 1000, UTC)
