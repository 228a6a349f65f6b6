"""Workers of coordinators and parts are killed: a batch has all its items, and reports every part once.

And eight of them share a bucket.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onthedot import SyncBatch
from onthedot.model.flow_names import MemberUuids
from tests.faults import batch_app, scaled
from tests.faults.server_stores import ServerStore
from tests.faults.worker_processes import forked_workers, wait_for
from tests.support.app_access import call_store, worker_pids

pytestmark = [
    pytest.mark.fault,
    pytest.mark.once,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("server_store", ["sqlite", "redis", "postgres"], indirect=True),
]

PROGRAM = "tests.faults.batch_app"
COUNT = 50
BATCHES = scaled(3, 30)
WORKERS = 3
LEASE = 1.0


@pytest.fixture
def url(server_store: ServerStore) -> Iterator[str]:
    url = server_store.url(LEASE)
    with batch_app.app.override(store=url):
        yield url


def check(batch: SyncBatch[str]) -> None:
    result = batch.all(timeout=120)
    assert len(set(result.items)) == len(result.items) == COUNT
    assert (result.short_by, result.failed_parts, result.refused) == (0, 0, {})
    parts = list(batch.parts())
    assert [part.number for part in parts] == [1, 2, 3, 4, 5]
    assert sorted(part.index for part in parts) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("every", [23, 29, 37])
def test_workers_that_die_at_every_point_of_a_batch_lose_and_double_nothing(
    url: str, run_log_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """The points are before and after each store call of a coordinator, and in a part. A run has up to 20."""
    monkeypatch.setenv("KILL", str(every))
    with forked_workers(url, run_log_path, WORKERS, PROGRAM):
        batches = [batch_app.app.sync.batch(batch_app.names, count=COUNT) for _ in range(scaled(2, 20))]
        for batch in batches:
            check(batch)
    assert len(run_log_path.read_text().splitlines()) >= every, "no worker was killed"


def test_killed_workers_lose_and_double_nothing(url: str, run_log_path: Path) -> None:
    rng = random.Random(20)
    killed: list[float] = [time.monotonic()]
    with forked_workers(url, run_log_path, WORKERS, PROGRAM):
        wait_for(lambda: len(worker_pids(batch_app.app)) == WORKERS, 60)
        for _ in range(BATCHES):
            batch = batch_app.app.sync.batch(batch_app.names, count=COUNT, args={"pause": 0.3})

            def kill() -> None:
                alive = sorted(worker_pids(batch_app.app))
                if len(alive) == WORKERS and time.monotonic() - killed[-1] > 0.5:  # the others get time to work
                    subprocess.run(["kill", f"-{signal.SIGKILL.value}", str(rng.choice(alive))], check=False)
                    killed.append(time.monotonic())

            wait_for(lambda batch=batch: batch_app.app.sync.get(batch.id).state.ended, 120, kill)  # type: ignore[misc]
            check(batch)
    assert len(killed) > 1


@pytest.mark.timed
def test_deadline_is_kept_while_a_part_hangs_and_a_worker_dies(url: str, run_log_path: Path) -> None:
    with forked_workers(url, run_log_path, WORKERS, PROGRAM):
        wait_for(lambda: len(worker_pids(batch_app.app)) == WORKERS, 60)
        batch = batch_app.app.sync.batch(batch_app.one_hangs, count=COUNT, deadline=5)
        wait_for(lambda: batch.progress().done == 4, 60)
        subprocess.run(["kill", f"-{signal.SIGKILL.value}", str(max(worker_pids(batch_app.app)))], check=False)
        result = batch.all(timeout=60)
        info = batch_app.app.sync.get(batch.id)
    assert (len(set(result.items)), result.short_by, result.failed_parts) == (COUNT - 10, 10, 1)
    assert info.ended_at is not None
    took = (info.ended_at - info.added_at).total_seconds()
    assert 5 <= took < 5 + 3, "on time, or late by what a busy machine takes for one turn"


def test_bucket_with_a_cost_holds_under_eight_processes(url: str, run_log_path: Path) -> None:
    """By the clock of the store: in no span of time do more tokens start than the bucket gives."""
    parts = scaled(16, 100)
    with forked_workers(url, run_log_path, 8, PROGRAM):
        wait_for(lambda: len(worker_pids(batch_app.app)) == 8, 60)
        batch = batch_app.app.sync.batch(batch_app.costly, count=parts)
        assert len(batch.all(timeout=120).items) == parts
        uuids = [MemberUuids(batch.id).of(index) for index in range(parts)]
        records = call_store(batch_app.app, lambda store: store.get(uuids))
    started = sorted(record.history.started or 0 for record in records if record is not None)
    assert len(started) == parts
    for first in range(parts):
        for last in range(first, parts):
            seconds = (started[last] - started[first] + 1) / 1000  # times are whole milliseconds
            tokens = (last - first + 1) * batch_app.COST
            assert tokens <= batch_app.BURST + batch_app.RATE * seconds + 1, "more started than the bucket gives"
