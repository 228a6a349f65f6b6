"""The supervisor sends heartbeats: tasks of a dead process are taken over at once, those of a blocked one are not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import LONG, scaled, task_app
from tests.faults.machines import Machine, machines, parents
from tests.faults.run_log import RunEntry, RunLog, takeover_times
from tests.faults.server_stores import SERVER_STORES, ServerStore, server_store_params
from tests.faults.test_killed_workers import sessions
from tests.faults.worker_processes import wait_for

pytestmark = [
    pytest.mark.fault,
    pytest.mark.timeout(900 if LONG else 300),
]  # the delay before a restart grows for processes that die early

LEASE = 2  # seconds
long = pytest.mark.skipif(not LONG, reason="ONTHEDOT_FAULTS=long")


def begun(run_log: RunLog, uuid: str) -> list[RunEntry]:
    return [entry for entry in run_log.entries() if entry.uuid == uuid and entry.event == "begin"]


def holder(run_log: RunLog, uuid: str, hosts: list[Machine]) -> Machine:
    wait_for(lambda: len(begun(run_log, uuid)) == 1, 30)
    pid = begun(run_log, uuid)[0].pid
    return next(machine for machine in hosts if pid in machine.children())


@pytest.mark.timed
@pytest.mark.parametrize("server_store", server_store_params("redis", "postgres"), indirect=True)
def test_tasks_of_a_dead_child_are_taken_over_at_once_and_of_a_machine_after_its_lease(
    server_store: ServerStore, run_log: RunLog, run_log_path: Path
) -> None:
    """With a lease of 30 s, only the supervisor can report the death of a child in time."""
    took = []
    with task_app.app.override(store=server_store.url(30)), machines(2, server_store.url(30), run_log_path) as hosts:
        wait_for(lambda: sessions() == 2, 30)
        for _ in range(scaled(1, 20)):
            handle = task_app.slow.delay(600)
            machine = holder(run_log, handle.uuid, hosts)
            (pid,) = machine.children()
            died = machine.kill_child(pid)
            wait_for(lambda handle=handle: len(begun(run_log, handle.uuid)) == 2, 20)
            handle.cancel()
            if LONG:
                wait_for(lambda: sessions() == 2, 60)
            took += takeover_times(run_log.entries(), pid, died)
    print(f"\na child: taken over after {', '.join(f'{s * 1000:.0f}' for s in took)} ms")
    assert max(took) <= 5, "the supervisor reports it, not the end of the lease"
    assert not LONG or sorted(took)[len(took) // 2] <= 0.1

    if not LONG:  # killed machines are also in test_many_machines.py
        return
    with (
        task_app.app.override(store=server_store.url(LEASE)),
        machines(2, server_store.url(LEASE), run_log_path) as hosts,
    ):
        wait_for(lambda: sessions() == 2, 30)
        handle = task_app.slow.delay(600)
        (pid,), died = holder(run_log, handle.uuid, hosts).kill()
        wait_for(lambda: len(begun(run_log, handle.uuid)) == 2, 20)
        handle.cancel()
    (late,) = takeover_times(run_log.entries(), pid, died)
    print(f"a machine: after {late:.2f} s with a lease of {LEASE} s")
    assert LEASE / 2 < late <= LEASE + 1


@pytest.fixture(scope="module")
def redis() -> Iterator[ServerStore]:
    with SERVER_STORES["redis"]() as server_store:
        yield server_store


@pytest.fixture(scope="module")
def shared_run_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunLog]:
    run_log = RunLog(tmp_path_factory.mktemp("supervisor") / "run_log")
    yield run_log
    run_log.close()


@pytest.fixture(scope="module")
def pair(redis: ServerStore, shared_run_log: RunLog) -> Iterator[list[Machine]]:
    """Two machines, so that a lost task would be taken over."""
    store = redis.url(LEASE)
    with task_app.app.override(store=store), machines(2, store, shared_run_log.path) as hosts:
        wait_for(lambda: sessions() == 2, 30)
        yield hosts


def test_blocked_worker_and_worker_without_supervisor_run_a_task_once(
    pair: list[Machine], shared_run_log: RunLog
) -> None:
    """For three leases, a call holds the GIL, and on the other machine the supervisor is stopped."""
    holding = task_app.hold_gil.delay(3 * LEASE)
    busy = holder(shared_run_log, holding.uuid, pair)
    slow = task_app.slow.delay(3 * LEASE)
    other = holder(shared_run_log, slow.uuid, pair)
    assert other is not busy
    other.send_signal(signal.SIGSTOP)
    assert slow.result(timeout=30) == "slow"
    other.send_signal(signal.SIGCONT)
    assert holding.result(timeout=30) == "released"
    for handle in (holding, slow):
        assert len(begun(shared_run_log, handle.uuid)) == 1
        assert handle.info().crashes == 0


def test_cancel_arrives_with_a_heartbeat_when_hints_are_lost(
    pair: list[Machine], redis: ServerStore, shared_run_log: RunLog
) -> None:
    handle = task_app.slow.delay(600)
    holder(shared_run_log, handle.uuid, pair)
    redis.drop_hints()
    try:
        assert handle.cancel()
        wait_for(handle.done, 20)
    finally:
        redis.drop_hints(False)
    assert handle.state().value == "cancelled"


@long
def test_stopped_child_runs_its_task_once(pair: list[Machine], shared_run_log: RunLog) -> None:
    handle = task_app.slow.delay(3)
    (pid,) = holder(shared_run_log, handle.uuid, pair).children()
    os.kill(pid, signal.SIGSTOP)
    time.sleep(3 * LEASE)  # longer than the lease
    os.kill(pid, signal.SIGCONT)
    assert handle.result(timeout=30) == "slow"
    assert (len(begun(shared_run_log, handle.uuid)), handle.info().crashes) == (1, 0)


@long
def test_rolling_restart_counts_no_crash(pair: list[Machine], shared_run_log: RunLog) -> None:
    handles = task_app.work.delay_many([{"number": number} for number in range(300)])
    before = {machine.supervisor.pid: machine.children() for machine in pair}
    wait_for(lambda: len(shared_run_log.entries()) > 20, 30)
    for machine in pair:
        machine.send_signal(signal.SIGHUP)
    assert [handle.result(timeout=60) for handle in handles] == list(range(300))
    wait_for(lambda: all(not set(m.children()) & set(before[m.supervisor.pid]) for m in pair), 60)
    wait_for(lambda: sessions() == 2, 30)  # the old processes have closed their sessions
    assert {handle.info().crashes for handle in handles} == {0}


def test_process_with_a_stalled_event_loop_is_killed(run_log_path: Path) -> None:
    with SERVER_STORES["redis"]() as own, task_app.app.override(store=own.url(30)):
        handle = task_app.stuck.delay()
        with machines(1, own.url(30), run_log_path, "--stall-limit", "1") as (machine,):
            wait_for(handle.done, 60)
            assert "died 1 times" in str(handle.exception(timeout=1))
            text = machine.log.read_text()
    assert "in stuck" in text, "faulthandler names the line"
    assert "stalled, killed by SIGABRT; starting another" in text


@long
def test_pool_process_does_not_outlive_its_worker(pair: list[Machine], shared_run_log: RunLog) -> None:
    handle = task_app.compute.delay()
    wait_for(lambda: len(begun(shared_run_log, handle.uuid)) == 1, 30)
    child = next(pid for machine in pair for pid in machine.children() if pid in worked(shared_run_log, handle.uuid))
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: len(begun(shared_run_log, handle.uuid)) == 2, 30)
    first, second = begun(shared_run_log, handle.uuid)
    wait_for(lambda: not Path(f"/proc/{first.pid}").exists(), 5)
    handle.cancel()
    wait_for(handle.done, 20)
    last = max(entry.at for entry in shared_run_log.entries() if entry.pid == first.pid)
    assert last <= second.at + 0.3, "the old process still computes after the take-over"


def worked(run_log: RunLog, uuid: str) -> set[int]:
    """The pid of the process that runs it, and of all its ancestors."""
    above = begun(run_log, uuid)[0].pid
    found = set[int]()
    tree = parents()
    while above in tree:
        found.add(above)
        above = tree[above]
    return found
