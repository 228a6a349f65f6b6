"""Two versions of the package on one store: both add, both run, and a rolling restart replaces one by the other.

The older one is a revision of this repository: ``ONTHEDOT_PREVIOUS``, by default the one before this.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from onthedot import StoreRefused
from tests.faults import LONG, scaled, task_app
from tests.faults.run_log import RunLog
from tests.faults.server_stores import ServerStore
from tests.faults.test_killed_workers import counts, done, sessions
from tests.faults.worker_processes import (
    SOURCE,
    WorkerProcesses,
    run_clients,
    wait_for,
    wait_for_progress,
    worker_processes,
)
from tests.support.fault_report import report_faults
from tests.support.previous_tree import (
    layout,
    previous_revision,
    previous_tree,
    revision_before_flows,
    revision_before_the_schema,
)
from tests.support.services.programs import Missing, give_up
from tests.support.waits import SOON

pytestmark = [pytest.mark.fault, pytest.mark.timeout(1200 if LONG else 180)]

LEASE = 10  # seconds
TASKS = scaled(300, 10_000)


def add(url: str, run_log: Path, source: Path, number: int) -> set[str]:
    """Tasks that a process with the package of this folder adds, of several kinds."""
    (uuids,) = run_clients(
        url, run_log, 1,
        f"""
        uuids = []
        for start in range(0, {number}, 100):
            numbers = range(start, min(start + 100, {number}))
            uuids += task_app.work.delay_many([{{"number": n}} for n in numbers if n % 4 == 0])
            uuids += task_app.limited.delay_many([{{"number": n}} for n in numbers if n % 4 == 1])
            uuids += task_app.keyed.delay_many([{{"key": n % 7}} for n in numbers if n % 4 == 2])
            uuids += task_app.work.options(after=0.5).delay_many([{{"number": n}} for n in numbers if n % 4 == 3])
        return " ".join(handle.uuid for handle in uuids)
        """,
        source,
    )  # fmt: skip
    found = set(uuids.split())
    assert len(found) == number
    return found


def restart_with(workers: WorkerProcesses, others: WorkerProcesses) -> None:
    """One by one: a worker of the first kind stops in order, and one of the second kind starts."""
    for worker in list(workers.workers):
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
        workers.workers.remove(worker)
        others.workers.append(others.start())


def check_runs(run: str, uuids: set[str], run_log: RunLog) -> None:
    """All tasks have succeeded, each in one run."""
    assert counts() == {"succeeded": len(uuids)}
    report = report_faults(run, task_app.app, uuids, run_log.entries(), [])
    report.check(most_extra_runs=0)
    ended = Counter(entry.uuid for entry in run_log.entries() if entry.event == "end")
    assert ended == Counter(dict.fromkeys(uuids, 1))


@pytest.mark.parametrize("server_store", ["sqlite", "redis", "postgres"], indirect=True)
def test_two_versions_run_each_others_tasks_once(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path, tmp_path: Path
) -> None:
    """The older one creates the store. It runs what the newer one adds, the newer one what the older one adds."""
    try:
        revision = previous_revision(tmp_path, server_store.name)
        previous = previous_tree(tmp_path, revision)
    except Missing as missing:
        give_up(missing)
    layouts = [layout(source, server_store.name) for source in (previous, SOURCE)]
    if layouts[0] != layouts[1]:
        pytest.skip(f"{server_store.name}: the layout {layouts[0]} of {revision} is another one than {layouts[1]}")
    url = server_store.url(LEASE)
    third = TASKS // 3
    with task_app.app.override(store=url):
        uuids = add(url, run_log_path, previous, third)
        with worker_processes(url, run_log_path, 1, source=SOURCE):
            wait_for_progress(done, len(uuids))
        uuids |= add(url, run_log_path, SOURCE, third)
        with worker_processes(url, run_log_path, 1, source=previous):
            wait_for_progress(done, len(uuids))
        with (
            worker_processes(url, run_log_path, 2, source=previous) as older,
            worker_processes(url, run_log_path, 0, source=SOURCE) as newer,
        ):
            wait_for(lambda: sessions() == 2, 30)
            for source in (previous, SOURCE):
                uuids |= add(url, run_log_path, source, third // 2)
            restart_with(older, newer)
            uuids |= add(url, run_log_path, previous, third // 2)
            wait_for_progress(done, len(uuids))
        check_runs(f"two versions, {server_store.name}, {revision[:10]}", uuids, run_log)


@pytest.mark.parametrize("server_store", ["sqlite", "postgres"], indirect=True)
def test_workers_of_the_schema_before_continue_during_an_upgrade(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path, tmp_path: Path
) -> None:
    """A process of this version upgrades the schema while workers of the version before run tasks. They are replaced
    one by one; another process of theirs is refused."""
    try:
        older_source = previous_tree(tmp_path, revision_before_the_schema(server_store.name))
    except Missing as missing:
        give_up(missing)
    versions = [layout(source, server_store.name)[0] for source in (older_source, SOURCE)]
    assert int(versions[0]) == int(versions[1]) - 1
    url = server_store.url(LEASE)
    third = TASKS // 3
    uuids = add(url, run_log_path, older_source, third)
    with (
        worker_processes(url, run_log_path, 2, source=older_source) as older,
        worker_processes(url, run_log_path, 0, source=SOURCE) as newer,
    ):
        wait_for(lambda: any(entry.event == "end" for entry in run_log.entries()), 30)
        uuids |= add(url, run_log_path, SOURCE, third)  # it upgrades the schema
        with task_app.app.override(store=url):
            wait_for_progress(done, len(uuids))
            uuids |= add(url, run_log_path, SOURCE, third)
            restart_with(older, newer)
            wait_for_progress(done, len(uuids))
            check_runs(f"upgrade from schema {versions[0]}, {server_store.name}", uuids, run_log)
        late = older.start()
        assert late.wait(30) != 0, "a process that starts must know the schema"
    assert "upgrade onthedot" in older.log.read_text()


@pytest.mark.parametrize("server_store", ["redis"], indirect=True)
def test_flow_is_refused_while_a_worker_of_a_version_without_flows_is_alive(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path, tmp_path: Path
) -> None:
    """It would end members without incrementing a counter. Plain tasks run in it; the flow is added after its end.

    On Redis alone: this version refuses a SQLite file and a database whose schema is that old. A forged session stands
    for such a worker in tests/unit/flows/test_refusals.py, on all stores.
    """
    try:
        older_source = previous_tree(tmp_path, revision_before_flows())
    except Missing as missing:
        give_up(missing)
    url = server_store.url(LEASE)
    uuids = add(url, run_log_path, older_source, 20)
    with (
        task_app.app.override(store=url),
        worker_processes(url, run_log_path, 1, source=older_source) as older,
        worker_processes(url, run_log_path, 0, source=SOURCE) as newer,
    ):
        wait_for(lambda: any(entry.event == "end" for entry in run_log.entries()), SOON)
        flow = task_app.work.s(7) | task_app.work
        with pytest.raises(StoreRefused) as refused:
            flow.delay()
        assert f"(pid {older.workers[0].pid}, version " in str(refused.value)
        assert "does not know flows" in str(refused.value)
        uuids |= add(url, run_log_path, SOURCE, 20)
        wait_for_progress(done, len(uuids))
        check_runs(f"version without flows, {server_store.name}", uuids, run_log)
        restart_with(older, newer)
        wait_for(lambda: sessions() == 1, SOON)
        assert flow.delay().result(SOON) == 7
