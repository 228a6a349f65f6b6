"""Tasks in processes: the end of a child and its effects, and limits of a child."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onthedot import TaskCancelled, TaskFailed, TaskTimeout, WorkerDied
from onthedot.executors.processes import Processes, fork_server
from onthedot.runtime.executors import slots_of
from tests.support.leak_check import descendants
from tests.support.processes import lives, start_script
from tests.support.programs import tasks
from tests.support.waits import SOON, until

pytestmark = [
    pytest.mark.skipif(not fork_server.is_supported(), reason="needs process groups"),
    pytest.mark.usefixtures("no_process_stays"),
]
app = tasks.app

AT_ONCE = 0.3  # seconds within which a killed process is gone


def parent_of(pid: int) -> int:
    return int(subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=True).stdout)


def pids_in(folder: Path) -> list[int]:
    return [int((folder / name).read_text()) for name in ("task", "child") if (folder / name).exists()]


def in_a_fork(condition: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0 if condition() else 1)
    return os.waitpid(child, 0)[1] == 0


# -- the end of a child


@pytest.mark.parametrize(("how", "message"), [("exit", "exit code 3"), ("SIGSEGV", "SIGSEGV"), ("SIGKILL", "SIGKILL")])
async def test_a_child_that_dies_fails_its_own_task_only(how: str, message: str, tmp_path: Path) -> None:
    async with app.running():
        neighbour = await tasks.waits.enqueue(str(tmp_path / "go"))
        assert await (await tasks.dies.enqueue(how, False)).result(SOON) == "second time"
        error = await (await tasks.dies.enqueue(how, True)).exception(SOON)
        assert isinstance(error, WorkerDied)
        assert error.error_type == "onthedot.WorkerDied"
        assert message in error.message
        assert error.attempt == 2
        (tmp_path / "go").touch()
        assert await neighbour.result(SOON) == "done"


async def test_a_child_that_crashes_writes_its_stack(capfd: pytest.CaptureFixture[str]) -> None:
    async with app.running():
        assert isinstance(await (await tasks.dies.enqueue("SIGSEGV", True)).exception(SOON), WorkerDied)
    written = capfd.readouterr().err
    assert "Segmentation fault" in written
    assert " in dies" in written


@pytest.mark.timed
async def test_a_timeout_kills_the_task_and_its_forks_only(tmp_path: Path) -> None:
    async with app.running():
        neighbour = await tasks.waits.enqueue(str(tmp_path / "go"))
        await until(lambda: is_running(neighbour))
        handle = await tasks.stubborn.enqueue(str(tmp_path))
        await until(lambda: len(pids_in(tmp_path)) == 2)
        error = await handle.exception(SOON)
        assert isinstance(error, TaskTimeout)
        assert await until(lambda: not any(map(lives, pids_in(tmp_path)))) < AT_ONCE
        assert await (await tasks.add.enqueue(1, 2)).result(SOON) == 3
        (tmp_path / "go").touch()
        assert await neighbour.result(SOON) == "done"


@pytest.mark.timed
async def test_a_cancel_kills_the_task_and_its_forks(tmp_path: Path) -> None:
    async with app.running():
        handle = await tasks.endless.enqueue(str(tmp_path))
        await until(lambda: len(pids_in(tmp_path)) == 2)
        assert await handle.cancel()
        assert await until(lambda: not any(map(lives, pids_in(tmp_path)))) < AT_ONCE
        assert isinstance(await handle.exception(SOON), TaskCancelled)


@pytest.mark.timed
async def test_stop_kills_tasks_that_do_not_end_and_requeues_them(tmp_path: Path) -> None:
    async with app.running():
        handle = await tasks.endless.enqueue(str(tmp_path))
        await until(lambda: len(pids_in(tmp_path)) == 2)
    assert await until(lambda: not any(map(lives, pids_in(tmp_path)))) < AT_ONCE
    assert await handle.state() == "cancelled"  # by the shutdown of a memory store


@pytest.mark.timed
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
async def test_no_process_survives_a_killed_worker(method: str, tmp_path: Path) -> None:
    with start_script("killed_worker.py", method, str(tmp_path)) as worker:
        try:
            await until(lambda: len(pids_in(tmp_path)) == 2)
            family = [pid for pid, name in descendants(worker.pid).items() if "onthedot" in name]
            assert len(family) >= 3  # the fork server, the task, a spare child
        finally:
            worker.kill()
        took = await until(lambda: not any(map(lives, [*pids_in(tmp_path), *family])))
    assert took < AT_ONCE


async def test_a_fork_of_a_task_sends_no_answer(tmp_path: Path) -> None:
    async with app.running():
        assert await (await tasks.forks_and_returns.enqueue(str(tmp_path))).result(SOON) == "of the task"
        assert await (await tasks.add.enqueue(1, 2)).result(SOON) == 3


async def test_an_idle_child_that_was_killed_is_replaced() -> None:
    async with app.running():
        for _ in range(3):
            os.kill(await (await tasks.pid.enqueue()).result(SOON), signal.SIGKILL)
        assert await (await tasks.add.enqueue(1, 2)).result(SOON) == 3


@pytest.mark.timed
async def test_a_killed_fork_server_fails_running_tasks_only(tmp_path: Path) -> None:
    async with app.running():
        handle = await tasks.endless.enqueue(str(tmp_path))
        await until(lambda: len(pids_in(tmp_path)) == 2)
        task, _ = pids_in(tmp_path)
        os.kill(parent_of(task), signal.SIGKILL)
        error = await handle.exception(SOON)
        assert isinstance(error, TaskFailed)
        assert "parent" in error.message
        assert await until(lambda: not any(map(lives, pids_in(tmp_path)))) < AT_ONCE
        assert await (await tasks.add.enqueue(1, 2)).result(SOON) == 3


async def test_signals_to_the_process_group_do_not_reach_the_tasks(tmp_path: Path) -> None:
    async with app.running():
        handle = await tasks.waits.enqueue(str(tmp_path / "go"))
        await until(lambda: is_running(handle))
        await (await tasks.pid.enqueue()).result(SOON)
        for pid, name in descendants(os.getpid()).items():
            if "onthedot" in name:
                os.kill(pid, signal.SIGINT)
                os.kill(pid, signal.SIGTERM)
        (tmp_path / "go").touch()
        assert await handle.result(SOON) == "done"


# -- limits of a child


async def test_a_child_is_replaced_after_max_tasks_per_child() -> None:
    async with app.running():
        pids = [await (await tasks.limited.enqueue()).result(SOON) for _ in range(5)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]


async def test_memory_limit_bounds_a_child() -> None:
    async with app.running():
        assert await (await tasks.allocates.enqueue(1 << 20)).result(SOON) == 1 << 20
        error = await (await tasks.allocates.enqueue(2 << 30)).exception(SOON)
        assert isinstance(error, TaskFailed)
        assert error.error_type == "MemoryError"
        assert error.message == "its process may use 1,073,741,824 bytes of address space (memory_limit)"
        assert await (await tasks.allocates.enqueue(1 << 20)).result(SOON) == 1 << 20


async def test_an_own_executor_has_its_own_slots() -> None:
    assert slots_of(app.runtime.config, Processes(3)) == 3
    assert slots_of(app.runtime.config, Processes()) == 2  # from processes=2


async def test_a_child_that_is_not_ready_in_time_fails_its_task() -> None:
    async with app.running():
        error = await (await tasks.never_begins.enqueue()).exception(SOON)
    assert isinstance(error, TaskFailed)
    assert "not ready after 0.001 s" in error.message


@pytest.mark.parametrize("bad", [{"slots": 0}, {"method": "fork"}, {"max_tasks_per_child": 0}, {"slots": 1.5}])
def test_wrong_parameters_of_processes_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Processes(**bad)


async def test_idle_children_use_no_cpu() -> None:
    def used() -> float:
        return sum(
            sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
            for pid, name in descendants(os.getpid()).items()
            if "onthedot" in name
        ) / os.sysconf("SC_CLK_TCK")

    async def spare_is_ready() -> bool:
        before = used()
        await asyncio.sleep(0.1)  # ten clock ticks: its imports would use some of them
        return used() == before

    async with app.running():
        await (await tasks.pid.enqueue()).result(SOON)
        await until(lambda: len(descendants(os.getpid())) >= 3)
        await until(spare_is_ready)
        before = used()
        await asyncio.sleep(0.5)  # the time that is checked
        assert used() - before <= 0.01


async def test_a_fork_of_the_worker_does_not_own_the_pool() -> None:
    async with app.running():
        assert await (await tasks.add.enqueue(1, 2)).result(SOON) == 3
        pool = app.runtime.executors["process"]
        assert isinstance(pool, Processes)
        assert not pool.is_empty
        assert in_a_fork(lambda: pool.is_empty)
        assert await (await tasks.add.enqueue(1, 2)).result(SOON) == 3


# -- where the code is


async def is_running(handle: Any) -> bool:
    return await handle.state() == "running"
