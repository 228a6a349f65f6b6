"""Limits and unique keys with eight processes on one file. The runs are logged outside of the system under test."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest

from onthedot.model.task import TaskInfo
from tests.faults import LONG, scaled, task_app
from tests.faults.commit_log import CommitLog, replay
from tests.faults.run_log import RunLog, max_concurrent_by_group, with_ends_at_death
from tests.faults.test_killed_workers import sessions
from tests.faults.worker_processes import forked_workers, run_clients, wait_for
from tests.support.app_access import call_operations, call_store, worker_pids

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900)]

PROCESSES = 8
RATE = 50
BURST = 10


@dataclass
class Location:
    url: str
    run_log: Path


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Location]:
    folder = tmp_path_factory.mktemp("limits")
    location = Location(f"sqlite:///{folder}/shop.db", folder / "run_log")
    with task_app.app.override(store=location.url):
        yield location


@pytest.fixture(scope="module")
def workers(location: Location) -> Iterator[None]:
    """Eight of them, with eight slots each."""
    RunLog(location.run_log).close()
    with forked_workers(location.url, location.run_log, PROCESSES):
        wait_for(lambda: sessions() == PROCESSES, 60)
        yield


def tasks_of(source: str, **where: Any) -> list[TaskInfo]:
    found: list[TaskInfo] = []
    cursor = None
    while True:
        page = task_app.app.sync.find(source=source, limit=1000, cursor=cursor, **where)
        found += page
        cursor = page.cursor
        if cursor is None:
            return found


def unfinished(source: str) -> int:
    tally = call_store(task_app.app, lambda store: store.tally())
    return sum(n for (name, state), n in tally.items() if name == source and state not in ("succeeded", "cancelled"))


def test_never_three_of_a_key_at_once(location: Location, workers: None) -> None:
    check_never_three(location, CommitLog())


def check_never_three(location: Location, commits: CommitLog) -> None:
    """Never more than two tasks of a key, or of a source with the same limit, run at once.

    The tasks of a key are added next to each other, so that many of them would run at once without the limit.
    """
    keys = scaled(150, 1000)
    each = scaled(6, 10)
    kills = scaled(2, 20)
    rng = random.Random(3)
    deaths: dict[int, float] = {}
    run_log = RunLog(location.run_log)
    group_of: dict[str, object] = {}

    def entries() -> list[Any]:
        return [entry for entry in run_log.entries() if entry.uuid in group_of]

    def alive() -> set[int]:
        return worker_pids(task_app.app)

    seen = Counter[object]()
    samples = 0

    def look() -> None:
        """Samples the running tasks as the store reports them, between two commits."""
        nonlocal samples
        commits.follow()
        running = Counter(group_of[task.uuid] for task in tasks_of("keyed", state="running"))
        seen.update({key: number - seen[key] for key, number in running.items() if number > seen[key]})
        samples += 1

    for start in range(0, keys, 50):
        calls = [{"key": key} for key in range(start, min(start + 50, keys)) for _ in range(each)]
        handles = task_app.keyed.delay_many(calls)
        group_of |= {handle.uuid: call["key"] for handle, call in zip(handles, calls, strict=True)}
        look()  # on a busy machine most tasks have run when the last is added
    group_of |= {handle.uuid: "source" for handle in task_app.paired.delay_many([{}] * scaled(100, 1000))}
    for _ in range(kills):  # a killed process does not leak the capacity of a lane
        wait_for(lambda: len(entries()) > 100 * (1 + len(deaths)) and len(alive() - deaths.keys()) > 4, 60, look)
        pid = rng.choice(sorted(alive() - deaths.keys()))
        os.kill(pid, signal.SIGKILL)  # its parent starts another one
        deaths[pid] = time.monotonic()
    wait_for(lambda: unfinished("keyed") + unfinished("paired") == 0, 300, look)
    found = entries()
    run_log.close()
    most = max_concurrent_by_group(with_ends_at_death(found, deaths), group_of)
    rows = commits.rows()
    replayed = replay(rows, group_of)
    print(
        f"\n{len(group_of)} tasks of {keys} keys, {len(deaths)} processes killed: at most {max(most.values())} at once,"
        f" at most {max(seen.values())} as the store reports in {samples} samples;"
        f" after each of {len(rows)} commits at most {max(replayed.most.values())}"
    )
    assert {entry.uuid for entry in found if entry.event == "end"} == set(group_of)
    assert max(most.values()) == 2
    assert max(seen.values()) == 2
    assert sum(number == 2 for number in most.values()) > keys / 2, "the limit was hardly ever reached"
    assert max(replayed.most.values()) == replayed.most["source"] == 2
    assert sum(number == 2 for number in replayed.most.values()) > keys / 2
    begun = Counter(entry.uuid for entry in found if entry.event == "begin")
    assert all(replayed.starts[uuid] >= number for uuid, number in begun.items()), "the change feed has every start"


def test_rate_holds_in_every_time_window(location: Location, workers: None) -> None:
    """For a source and for a lane, by the start times of the store, which are whole milliseconds."""
    wait_for(lambda: sessions() == PROCESSES, 30)
    seconds = scaled(3, 20)
    kinds = (task_app.paced, task_app.metered)
    for task in kinds:
        task.delay_many([{}] * int(RATE * seconds * 1.5))
    wait_for(lambda: all(len(tasks_of(task.name, state="succeeded")) > 0 for task in kinds), 30)
    time.sleep(seconds)  # the time that is checked
    for task in kinds:
        task_app.app.sync.pause(task.name)
        check_windows(task.name, seconds)


def check_windows(source: str, seconds: float) -> None:
    starts = sorted(info.started_at.timestamp() for info in tasks_of(source, state="succeeded") if info.started_at)
    starts = [at for at in starts if at <= starts[0] + seconds]
    for first, last in combinations_with_replacement(range(len(starts)), 2):
        window = starts[last] - starts[first] + 0.001
        assert last - first + 1 <= RATE * window + BURST + 1e-6, (first, last, window)
    used = len(starts) / (RATE * seconds + BURST)
    print(f"\n{source}: {len(starts)} starts in {seconds} s, {used:.1%} of the tokens")
    assert used >= (0.97 if LONG else 0.5)  # on a loaded machine no process may claim for a while


@pytest.mark.timed
def test_raised_limit_takes_effect_in_other_processes_at_once(location: Location, workers: None) -> None:
    call_operations(task_app.app, lambda operations: operations.limits.set("slow", cap=1))
    handles = task_app.slow.delay_many([{"seconds": 1.0}] * 4)
    wait_for(lambda: sum(handle.info().started_at is not None for handle in handles) == 1, 30)
    raised = time.time()
    call_operations(task_app.app, lambda operations: operations.limits.set("slow", cap=4))
    wait_for(lambda: all(handle.done() for handle in handles), 30)
    started = sorted(info.started_at.timestamp() for handle in handles if (info := handle.info()).started_at)
    print(f"\nstarted {', '.join(f'{(at - raised) * 1000:.0f}' for at in started[1:])} ms after it was raised")
    assert started[1] - raised < 3, "polling would take ten seconds"


def test_eight_processes_add_one_unique_key_once(location: Location) -> None:
    number = scaled(25, 1000)
    results = run_clients(
        location.url, location.run_log, PROCESSES,
        f"""
        once = task_app.debounced.options(after=3600)
        return sum(once.delay("one", f"{{number}}-{{n}}").added for n in range({number}))
        """,
    )  # fmt: skip
    found = tasks_of("debounced")
    print(f"\n{PROCESSES} × {number} additions: {len(found)} task, added by {results.count('1')} of them")
    assert sorted(results) == ["0"] * (PROCESSES - 1) + ["1"]
    assert len(found) == 1
    writer, last = found[0].args["value"].split("-")
    assert int(last) == number - 1, f"the task does not have the last value of process {writer}"


def test_replaced_task_runs_with_a_value_that_was_added_to_it(location: Location, workers: None) -> None:
    """Every process debounces its own key while workers claim.

    A new value replaces that of the pending task or adds a new task. It never changes a running task.
    """
    results = run_clients(
        location.url, location.run_log, PROCESSES,
        f"""
        values = []
        for n in range({scaled(12, 300)}):
            handle = task_app.debounced.options(after=0.02).delay(f"key{{number}}", str(n))
            values.append(f"{{handle.uuid}}:{{n}}:{{int(handle.added)}}")
            time.sleep(0.005)
        return " ".join(values)
        """,
    )  # fmt: skip
    by_task: dict[str, list[int]] = {}
    for value in " ".join(results).split():
        uuid, number, added = value.split(":")
        assert (uuid not in by_task) == (added == "1"), "added is true only for a new task"
        by_task.setdefault(uuid, []).append(int(number))
    handles = [task_app.app.handle(uuid) for uuid in by_task]
    wait_for(lambda: all(handle.done() for handle in handles), 60)
    for handle, values in zip(handles, by_task.values(), strict=True):
        assert int(handle.result(timeout=1)) in values, "it ran with a value of another task"
    print(f"\n{sum(map(len, by_task.values()))} values became {len(by_task)} tasks")


@pytest.mark.timed
@pytest.mark.skipif(not LONG, reason="ONTHEDOT_FAULTS=long: a million tasks; short in tests/unit/engine/test_slots.py")
def test_new_task_starts_although_a_million_older_ones_are_pending(location: Location, workers: None) -> None:
    for _ in range(100):
        task_app.old.delay_many([{}] * 10_000)
    took = []
    for _ in range(20):
        info = task_app.fresh.delay().info()
        handle = task_app.app.handle(info.uuid)
        wait_for(handle.done, 30)
        ended = handle.info()
        assert ended.started_at is not None
        took.append((ended.started_at - ended.added_at).total_seconds() * 1000)
    pending = unfinished("old")
    task_app.app.sync.pause("old")
    print(f"\nwith {pending:,} older ones: started after {', '.join(f'{ms:.0f}' for ms in sorted(took))} ms")
    assert pending > 500_000
    assert sorted(took)[len(took) // 2] <= 50
