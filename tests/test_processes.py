"""Tasks in processes: what they know and give back, that they die when they must, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onthedot import App, ResultNotStored, TaskCancelled, TaskContext, TaskFailed, TaskTimeout
from onthedot.executors import processes, shepherd
from onthedot.executors.processes import Processes
from tests.leaves_nothing import descendants
from tests.processes import tasks
from tests.waiting import SOON, until

AT_ONCE = 0.3  # seconds within which what is killed is dead

pytestmark = pytest.mark.skipif(not shepherd.supported(), reason="needs process groups")
app = tasks.app


@pytest.fixture(autouse=True)
def no_process_stays() -> Iterator[None]:
    yield
    deadline = time.monotonic() + SOON
    while left := [name for name in descendants(os.getpid()).values() if "onthedot" in name]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def lives(pid: int) -> bool:
    """A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        if sys.platform == "linux":
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def parent_of(pid: int) -> int:
    return int(subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=True).stdout)


def pids_in(folder: Path) -> list[int]:
    return [int((folder / name).read_text()) for name in ("task", "child") if (folder / name).exists()]


def in_a_fork(condition: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0 if condition() else 1)
    return os.waitpid(child, 0)[1] == 0


# -- what goes in comes out


@pytest.mark.parametrize("task", [tasks.pid, tasks.spawned_pid])
async def test_a_task_runs_in_another_process_and_the_next_in_the_same(task: Any) -> None:
    async with app.running():
        first = await (await task.enqueue()).result(SOON)
        assert first != os.getpid()
        assert await (await task.enqueue()).result(SOON) == first


async def test_arguments_and_results_are_what_they_were() -> None:
    loose = {"when": (1, 2), 3: {"a"}}
    async with app.running():
        handle = await tasks.mirrored.enqueue(tasks.Point(1, 2), loose)
        assert await handle.result(SOON) == (tasks.Point(2, 1), loose)


async def test_large_ones_go_through_while_the_loop_goes_on() -> None:
    big = b"x" * (1 << 19)
    async with app.running():
        handle = await tasks.large.enqueue(big, 10)
        small = await tasks.add.enqueue(1, 2)
        assert await small.result(SOON) == 3
        assert await handle.result(SOON) == big * 10


async def test_an_async_function_has_a_loop_there() -> None:
    async with app.running():
        assert await (await tasks.slowly.enqueue("a")).result(SOON) == "a a"
        assert await (await tasks.slowly.enqueue("b")).result(SOON) == "b b"


async def test_a_consumer() -> None:
    async with app.running():
        handle = await app.named("consumer").enqueue(to="x")
        args, pid = await handle.result(SOON)
    assert args == {"to": "x"}
    assert pid != os.getpid()


async def test_what_it_knows_of_itself() -> None:
    async with app.running():
        handle = await tasks.known.options(metadata={"a": 1}).enqueue()
        seen = await handle.result(SOON)
    assert seen.pop("fence") > 0
    deadline = seen.pop("deadline")
    assert 0 < deadline.timestamp() - time.time() < 61
    assert seen == {
        "uuid": handle.uuid, "source": "known", "attempt": 1, "metadata": {"a": 1}, "tags": ["eu"], "is_last": True,
    }  # fmt: skip


async def test_progress_is_told_while_it_runs(tmp_path: Path) -> None:
    async with app.running():
        handle = await tasks.reports.enqueue(str(tmp_path / "go"))

        async def told() -> bool:
            return (await handle.info()).progress == (3, 4)

        await until(told)
        assert await handle.state() == "running"
        (tmp_path / "go").touch()
        await handle.result(SOON)


async def test_spawned_tasks_are_added_with_the_success_or_not_at_all() -> None:
    async with app.running():
        uuid = await (await tasks.spawns.enqueue(False)).result(SOON)
        assert await tasks.add.ahandle(uuid).result(SOON) == 3
        before = len((await app.find(source="add")).tasks)
        assert await (await tasks.spawns.enqueue(True)).exception(SOON) is not None
        assert len((await app.find(source="add")).tasks) == before


async def test_a_memory_store_is_out_of_reach_and_says_so() -> None:
    async with app.running():
        error = await (await tasks.adds.enqueue()).exception(SOON)
    assert isinstance(error, TaskFailed)
    assert error.error_type == "onthedot.errors.StoreRefused"
    assert "memory://" in error.message
    assert "spawn" in error.message


async def test_adding_from_a_child_goes_to_the_workers_own_store(tmp_path: Path) -> None:
    with app.override(store=f"sqlite:///{tmp_path}/tasks.db"):
        async with app.running():
            uuid = await (await tasks.adds.enqueue()).result(SOON)
            assert await tasks.add.ahandle(uuid).result(SOON) == 42


async def test_lifespan_runs_once_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAVES", str(tmp_path))
    async with app.running():
        first = await (await tasks.state.enqueue()).result(SOON)
        second = await (await tasks.state.enqueue()).result(SOON)
    assert first == {"pid": first["here"], "runs": 1, "here": first["here"]}
    assert second == {**first, "runs": 2}
    await until((tmp_path / str(first["here"])).exists)  # and is left when the child ends in order


# -- what it raises


@pytest.mark.parametrize(
    ("what", "comes"),
    [("own", "second time"), ("retry", "second time"), ("snooze", "attempt 1")],
)
async def test_what_makes_it_run_again(what: str, comes: str) -> None:
    async with app.running():
        assert await (await tasks.raises.enqueue(what)).result(SOON) == comes


@pytest.mark.parametrize(
    ("what", "kind", "message"),
    [
        ("other", "ValueError", "not mine"),
        ("reject", "onthedot.errors.Reject", "no good"),
        ("exit", "SystemExit", "3"),
        ("interrupt", "KeyboardInterrupt", ""),
        ("cancelled", "asyncio.exceptions.CancelledError", ""),
        ("stop", "StopIteration", ""),
    ],
)
async def test_what_fails_it_and_it_alone(what: str, kind: str, message: str) -> None:
    async with app.running():
        pid = await (await tasks.pid.enqueue()).result(SOON)
        error = await (await tasks.raises.enqueue(what)).exception(SOON)
        assert isinstance(error, TaskFailed)
        assert (error.error_type, error.message, error.attempt) == (kind, message, 1)
        assert "raise " in error.traceback
        assert "onthedot/executors" not in error.traceback
        assert lives(pid)


async def test_a_task_that_cancels_itself() -> None:
    async with app.running():
        error = await (await tasks.raises.enqueue("cancel")).exception(SOON)
    assert isinstance(error, TaskCancelled)
    assert error.reason == "not wanted"


async def test_a_result_that_cannot_be_stored(caplog: pytest.LogCaptureFixture) -> None:
    async with app.running():
        handle = await tasks.unstorable.enqueue()
        with pytest.raises(ResultNotStored):
            await handle.result(SOON)
        assert await handle.state() == "succeeded"
    assert [record.levelname for record in caplog.records if "cannot be stored" in record.message] == ["WARNING"]


async def test_layers_see_values_and_errors() -> None:
    seen: list[object] = []
    other = App("processes", store="memory://", stop_timeout=0)
    add = other.task(executor="process")(tasks.add.__wrapped__)
    raises = other.task(executor="process")(tasks.raises.__wrapped__)
    unstorable = other.task(executor="process")(tasks.unstorable.__wrapped__)

    @other.around
    async def layer(task: TaskContext, call: Callable[[], Any]) -> object:
        try:
            value = await call()
        except Exception as error:
            seen.append((type(error).__mro__[1], getattr(error, "error_type", "")))
            raise
        except BaseException as error:
            seen.append(type(error).__name__)
            raise
        if isinstance(value, int):
            seen.append(value)
            return value * 10
        return value

    async with other.running():
        assert await (await add.enqueue(1, 2)).result(SOON) == 30
        assert await (await raises.enqueue("other")).exception(SOON) is not None
        assert await (await raises.enqueue("reject")).exception(SOON) is not None
        with pytest.raises(ResultNotStored):
            await (await unstorable.enqueue()).result(SOON)
    assert seen == [3, (TaskFailed, "ValueError"), "Reject"]


async def test_log_lines_carry_what_happened_there(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "onthedot")
    async with app.running():
        await (await tasks.raises.enqueue("own")).result(SOON)
        await (await tasks.raises.enqueue("other")).exception(SOON)
    lines = [record.getMessage() for record in caplog.records]
    assert any("[retry]" in line and "tests.processes.tasks.Own: mine" in line for line in lines)
    (failed,) = [record for record in caplog.records if "[fail]" in record.getMessage()]
    assert failed.getMessage().endswith(": not mine")
    assert "raise RAISED" in logging.Formatter().format(failed)


# -- the end of a child


@pytest.mark.parametrize(("how", "said"), [("exit", "exit code 3"), ("SIGSEGV", "SIGSEGV"), ("SIGKILL", "SIGKILL")])
async def test_a_child_that_dies_costs_its_own_task_only(how: str, said: str, tmp_path: Path) -> None:
    async with app.running():
        neighbour = await tasks.waits.enqueue(str(tmp_path / "go"))
        assert await (await tasks.dies.enqueue(how, False)).result(SOON) == "second time"
        error = await (await tasks.dies.enqueue(how, True)).exception(SOON)
        assert isinstance(error, TaskFailed)
        assert error.error_type == "onthedot.WorkerDied"
        assert said in error.message
        assert error.attempt == 2
        (tmp_path / "go").touch()
        assert await neighbour.result(SOON) == "done"


async def test_a_timeout_kills_the_task_and_what_it_forked_and_nobody_else(tmp_path: Path) -> None:
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


async def test_a_cancel_kills_it(tmp_path: Path) -> None:
    async with app.running():
        handle = await tasks.endless.enqueue(str(tmp_path))
        await until(lambda: len(pids_in(tmp_path)) == 2)
        assert await handle.cancel()
        assert await until(lambda: not any(map(lives, pids_in(tmp_path)))) < AT_ONCE
        assert isinstance(await handle.exception(SOON), TaskCancelled)


async def test_stop_kills_what_does_not_end_and_gives_it_back(tmp_path: Path) -> None:
    async with app.running():
        handle = await tasks.endless.enqueue(str(tmp_path))
        await until(lambda: len(pids_in(tmp_path)) == 2)
    assert await until(lambda: not any(map(lives, pids_in(tmp_path)))) < AT_ONCE
    assert await handle.state() == "cancelled"  # by the shutdown of a memory store


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
async def test_nothing_computes_on_when_the_worker_is_killed(method: str, tmp_path: Path) -> None:
    with start_script("killed_worker.py", method, str(tmp_path)) as worker:
        try:
            await until(lambda: len(pids_in(tmp_path)) == 2)
            family = [pid for pid, name in descendants(worker.pid).items() if "onthedot" in name]
            assert len(family) >= 3  # the shepherd, the task, a spare
        finally:
            worker.kill()
        took = await until(lambda: not any(map(lives, [*pids_in(tmp_path), *family])))
    assert took < AT_ONCE


async def test_a_fork_that_comes_back_says_nothing(tmp_path: Path) -> None:
    async with app.running():
        assert await (await tasks.forks_and_returns.enqueue(str(tmp_path))).result(SOON) == "of the task"
        assert await (await tasks.add.enqueue(1, 2)).result(SOON) == 3


async def test_an_idle_child_that_was_killed_is_replaced() -> None:
    async with app.running():
        for _ in range(3):
            os.kill(await (await tasks.pid.enqueue()).result(SOON), signal.SIGKILL)
        assert await (await tasks.add.enqueue(1, 2)).result(SOON) == 3


async def test_a_killed_shepherd_costs_what_runs_and_nothing_more(tmp_path: Path) -> None:
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


async def test_signals_for_the_whole_family_do_not_reach_the_tasks(tmp_path: Path) -> None:
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


# -- bounds of a child


async def test_a_child_is_replaced_after_so_many_tasks() -> None:
    async with app.running():
        pids = [await (await tasks.limited.enqueue()).result(SOON) for _ in range(5)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]


async def test_a_child_may_have_so_much_memory() -> None:
    async with app.running():
        assert await (await tasks.allocates.enqueue(1 << 20)).result(SOON) == 1 << 20
        error = await (await tasks.allocates.enqueue(2 << 30)).exception(SOON)
        assert isinstance(error, TaskFailed)
        assert error.error_type == "MemoryError"
        assert await (await tasks.allocates.enqueue(1 << 20)).result(SOON) == 1 << 20


async def test_an_own_executor_has_its_own_slots() -> None:
    assert app._core._slots(Processes(3)) == 3
    assert app._core._slots(Processes()) == 2  # as many as processes=2 says


async def test_a_child_that_does_not_get_ready() -> None:
    async with app.running():
        error = await (await tasks.never_begins.enqueue()).exception(SOON)
    assert isinstance(error, TaskFailed)
    assert "not ready after 0.001 s" in error.message


@pytest.mark.parametrize("bad", [{"slots": 0}, {"method": "fork"}, {"max_tasks_per_child": 0}, {"slots": 1.5}])
def test_what_cannot_be_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Processes(**bad)


async def test_idle_children_take_no_time() -> None:
    def used() -> float:
        return sum(
            sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
            for pid, name in descendants(os.getpid()).items()
            if "onthedot" in name
        ) / os.sysconf("SC_CLK_TCK")

    async with app.running():
        await (await tasks.pid.enqueue()).result(SOON)
        before = 0.0
        await until(lambda: len(descendants(os.getpid())) >= 3)
        for _ in range(50):  # until the spare is warm
            before, earlier = used(), before
            if before == earlier:
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)
        assert used() - before <= 0.01


async def test_a_fork_of_the_worker_does_not_own_the_pool() -> None:
    async with app.running():
        assert await (await tasks.add.enqueue(1, 2)).result(SOON) == 3
        (pool,) = [each for each in processes._pools if each._children]
        assert in_a_fork(lambda: pool._shepherd is None and not pool._children)
        assert await (await tasks.add.enqueue(1, 2)).result(SOON) == 3


# -- where the code is


async def test_a_task_that_no_import_declares() -> None:
    inside = tasks.declare_inside()
    try:
        async with app.running():
            error = await (await inside.enqueue()).exception(SOON)
    finally:
        app._core.sources.remove("inside")
    assert isinstance(error, TaskFailed)
    assert "module level" in error.message
    assert "'inside'" in error.message


async def test_a_system_without_process_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "killpg")
    async with app.running():
        error = await (await tasks.add.enqueue(1, 2)).exception(SOON)
    assert isinstance(error, TaskFailed)
    assert "executor='thread'" in error.message


def start_script(name: str, *arguments: str) -> subprocess.Popen[str]:
    script = Path(__file__).parent / "processes" / name
    command = [sys.executable, str(script), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=script.parents[2])


def run_script(name: str, *arguments: str) -> tuple[list[Any], str]:
    """The JSON lines it prints, and what it says on stderr."""
    with start_script(name, *arguments) as process:
        try:
            out, err = process.communicate(timeout=SOON)
        finally:
            process.kill()
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()], err


async def is_running(handle: Any) -> bool:
    return await handle.state() == "running"


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize("script", ["guarded.py", "unguarded.py", "sleeps_on.py"])
def test_tasks_of_a_script(script: str, method: str) -> None:
    lines, err = run_script(script, method)
    assert lines == [{"doubled": 42, "elsewhere": True, "error": "__main__.Own"}], err
    assert err == ""


def test_tasks_of_a_module_that_is_run() -> None:
    command = [sys.executable, "-m", "tests.processes.guarded", "forkserver"]
    folder = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON, check=True, cwd=folder)
    assert json.loads(done.stdout) == {"doubled": 42, "elsewhere": True, "error": "__main__.Own"}
    assert done.stderr == ""


def test_what_a_script_declares_after_it_acts(tmp_path: Path) -> None:
    lines, _ = run_script("declares_late.py")
    assert lines[0] == 42
    assert "declares_late.py:" in lines[1]
    assert "__main__" in lines[1]


def test_no_file_behind_the_task() -> None:
    code = """
from onthedot import App
app = App("typed", store="memory://")
@app.task(executor="process")
def double(n: int) -> int: return n * 2
with app.background():
    print(double.delay(2).exception(10).message)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SOON, check=True)
    assert "threading=True" in done.stdout
    assert "executor='thread'" in done.stdout


async def test_code_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "breaks_elsewhere.py"
    module.write_text(
        "from onthedot import App\napp = App('breaks', store='memory://', stop_timeout=0)\n"
        "@app.task(executor='process')\ndef work() -> None: ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import breaks_elsewhere  # type: ignore[import-not-found]

    module.write_text("raise RuntimeError('broken on the other side')\n")
    async with breaks_elsewhere.app.running():
        for _ in range(2):
            error = await (await breaks_elsewhere.work.enqueue()).exception(SOON)
            assert isinstance(error, TaskFailed)
            assert (error.error_type, error.message) == ("RuntimeError", "broken on the other side")
            assert "breaks_elsewhere.py" in error.traceback


def test_tasks_of_a_global_registry_run_without_their_scheduler(tmp_path: Path) -> None:
    lines, err = run_script("registry.py")
    assert lines == [[{"to": "x"}, True]], err
