"""Workers are killed at random moments: no task is lost, each is settled once and taken over in time."""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

import pytest

from tests.faults import scaled, task_app
from tests.faults.run_log import RunEntry, RunLog, extra_runs, max_concurrent, takeover_times
from tests.faults.worker_processes import WorkerProcesses, wait_for, wait_for_progress, worker_processes
from tests.support.app_access import call_store, session_count

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

WORKERS = 4


def done() -> int:
    return counts().get("succeeded", 0)


def counts() -> dict[str, int]:
    found: dict[str, int] = {}
    for (_, state), number in call_store(task_app.app, lambda store: store.tally()).items():
        found[state] = found.get(state, 0) + number
    return found


def sessions() -> int:
    return session_count(task_app.app)


def test_killed_workers_lose_no_task(store: str, run_log: RunLog, run_log_path: Path) -> None:
    tasks = scaled(4_000, 20_000)
    kills = scaled(15, 100)
    rng = random.Random(7)
    half = tasks // 2
    added = task_app.work.delay_many([{"number": n} for n in range(half)])
    added += task_app.limited.delay_many([{"number": n} for n in range(half)])
    acknowledged = {handle.uuid for handle in added}
    deaths: list[tuple[int, float]] = []
    with worker_processes(store, run_log_path, WORKERS) as workers:
        wait_for(lambda: done() > 0, 20)
        for _ in range(kills):
            time.sleep(rng.uniform(0.02, 0.25))  # the random moment
            index = rng.randrange(WORKERS)
            deaths.append(workers.kill(index))
            workers.replace(index)
            wait_for(lambda: sessions() == WORKERS, 20)  # the dead one is noticed, the new one is ready
        wait_for_progress(done, tasks)
        extra = task_app.fill_limit()
        wait_for_progress(done, tasks + len(extra))
    entries = run_log.entries()
    by_death = [taken for pid, died in deaths if (taken := sorted(takeover_times(entries, pid, died)))]
    first = max(taken[0] for taken in by_death)  # the others wait for a free slot
    took = sorted(seconds for taken in by_death for seconds in taken)
    lost = acknowledged - {entry.uuid for entry in entries}
    print(
        f"\n{tasks} acknowledged, {kills} kills: lost {len(lost)},"
        f" extra runs {extra_runs(entries)}, taken over {len(took)} in"
        f" p50 {statistics.median(took) * 1000:.0f} ms, p99 {took[len(took) * 99 // 100] * 1000:.0f} ms,"
        f" max {took[-1] * 1000:.0f} ms; of each death the first within {first * 1000:.0f} ms"
    )
    assert counts() == {"succeeded": tasks + len(extra)}
    assert {entry.uuid for entry in entries if entry.event == "end"} == acknowledged | extra
    assert extra_runs(entries) <= kills * task_app.SLOTS
    assert len({(e.uuid, e.fence) for e in entries if e.event == "begin"}) == sum(e.event == "begin" for e in entries)
    assert max_concurrent(entries, extra) == 12, "the limit is fully used after the kills, and never exceeded"
    assert took, "no kill hit a running task"


def test_another_process_takes_over_within_100_ms(store: str, run_log: RunLog, run_log_path: Path) -> None:
    with worker_processes(store, run_log_path, 2) as workers:
        wait_for(lambda: sessions() == 2, 20)
        took = [_kill_the_holder(workers, run_log) for _ in range(scaled(5, 20))]
    print(f"\ntaken over after {', '.join(f'{s * 1000:.0f}' for s in took)} ms")
    assert max(took) <= 0.1


def _kill_the_holder(workers: WorkerProcesses, run_log: RunLog) -> float:
    handle = task_app.slow.delay(0.3)

    def begun() -> list[RunEntry]:
        return [entry for entry in run_log.entries() if entry.uuid == handle.uuid and entry.event == "begin"]

    wait_for(lambda: len(begun()) == 1, 20)
    owner = next(index for index, worker in enumerate(workers.workers) if worker.pid == begun()[0].pid)
    pid, died = workers.kill(owner)
    wait_for(lambda: len(begun()) == 2, 20)
    assert handle.result(timeout=10) == "slow"
    workers.replace(owner)
    wait_for(lambda: sessions() == 2, 20)
    (took,) = takeover_times(run_log.entries(), pid, died)
    return took
