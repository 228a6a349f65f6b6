"""Tasks in processes: context, results, errors, and how their code is found."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onthedot import App, ResultNotStored, TaskCancelled, TaskContext, TaskFailed
from onthedot.executors.processes import fork_server
from tests.support.processes import lives, start_script
from tests.support.programs import tasks
from tests.support.waits import SOON, until

pytestmark = [
    pytest.mark.skipif(not fork_server.is_supported(), reason="needs process groups"),
    pytest.mark.usefixtures("no_process_stays"),
]
app = tasks.app


# -- arguments, results and context


@pytest.mark.parametrize("task", [tasks.pid, tasks.spawned_pid])
async def test_a_task_runs_in_another_process_and_the_next_in_the_same(task: Any) -> None:
    async with app.running():
        first = await (await task.enqueue()).result(SOON)
        assert first != os.getpid()
        assert await (await task.enqueue()).result(SOON) == first


async def test_arguments_and_results_cross_processes_unchanged() -> None:
    loose = {"when": (1, 2), 3: {"a"}}
    async with app.running():
        handle = await tasks.mirrored.enqueue(tasks.Point(1, 2), loose)
        assert await handle.result(SOON) == (tasks.Point(2, 1), loose)


async def test_large_arguments_do_not_block_the_event_loop() -> None:
    big = b"x" * (1 << 19)
    async with app.running():
        handle = await tasks.large.enqueue(big, 10)
        small = await tasks.add.enqueue(1, 2)
        assert await small.result(SOON) == 3
        assert await handle.result(SOON) == big * 10


async def test_an_async_function_runs_in_a_child() -> None:
    async with app.running():
        assert await (await tasks.slowly.enqueue("a")).result(SOON) == "a a"
        assert await (await tasks.slowly.enqueue("b")).result(SOON) == "b b"


async def test_a_consumer_runs_in_a_child() -> None:
    async with app.running():
        handle = await app.named("consumer").enqueue(to="x")
        args, pid = await handle.result(SOON)
    assert args == {"to": "x"}
    assert pid != os.getpid()


async def test_a_task_in_a_child_has_its_context() -> None:
    async with app.running():
        handle = await tasks.known.options(metadata={"a": 1}).enqueue()
        seen = await handle.result(SOON)
    assert seen.pop("fence") > 0
    deadline = seen.pop("deadline")
    assert 0 < deadline.timestamp() - time.time() < 61
    assert seen == {
        "uuid": handle.uuid, "source": "known", "attempt": 1, "metadata": {"a": 1}, "tags": ["eu"], "is_last": True,
    }  # fmt: skip


async def test_progress_of_a_child_is_visible_while_it_runs(tmp_path: Path) -> None:
    async with app.running():
        handle = await tasks.reports.enqueue(str(tmp_path / "go"))

        async def is_visible() -> bool:
            return (await handle.info()).progress == (3, 4)

        await until(is_visible)
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


async def test_adding_from_a_child_to_a_memory_store_is_refused() -> None:
    async with app.running():
        error = await (await tasks.adds.enqueue()).exception(SOON)
    assert isinstance(error, TaskFailed)
    assert error.error_type == "onthedot.StoreRefused"
    assert "memory://" in error.message
    assert "spawn" in error.message


async def test_adding_from_a_child_goes_to_the_workers_own_store(tmp_path: Path) -> None:
    with app.override(store=f"sqlite:///{tmp_path}/tasks.db"):
        async with app.running():
            uuid = await (await tasks.adds.enqueue()).result(SOON)
            assert await tasks.add.ahandle(uuid).result(SOON) == 42


async def test_lifespan_runs_once_per_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAVES", str(tmp_path))
    async with app.running():
        first = await (await tasks.state.enqueue()).result(SOON)
        second = await (await tasks.state.enqueue()).result(SOON)
    assert first == {"pid": first["here"], "runs": 1, "here": first["here"]}
    assert second == {**first, "runs": 2}
    await until((tmp_path / str(first["here"])).exists)  # and is left when the child ends normally


# -- errors


@pytest.mark.parametrize(
    ("what", "comes"),
    [("own", "second time"), ("retry", "second time"), ("snooze", "attempt 1")],
)
async def test_errors_retry_and_snooze_run_a_task_of_a_child_again(what: str, comes: str) -> None:
    async with app.running():
        assert await (await tasks.raises.enqueue(what)).result(SOON) == comes


@pytest.mark.parametrize(
    ("what", "kind", "message"),
    [
        ("other", "ValueError", "not mine"),
        ("reject", "onthedot.Reject", "no good"),
        ("exit", "SystemExit", "3"),
        ("interrupt", "KeyboardInterrupt", ""),
        ("cancelled", "asyncio.exceptions.CancelledError", ""),
        ("stop", "StopIteration", ""),
    ],
)
async def test_an_error_in_a_child_fails_its_task_only(what: str, kind: str, message: str) -> None:
    async with app.running():
        pid = await (await tasks.pid.enqueue()).result(SOON)
        error = await (await tasks.raises.enqueue(what)).exception(SOON)
        assert isinstance(error, TaskFailed)
        assert (error.error_type, error.message, error.attempt) == (kind, message, 1)
        assert "raise " in error.traceback
        assert "onthedot/executors" not in error.traceback
        assert lives(pid)


async def test_a_task_in_a_child_can_cancel_itself() -> None:
    async with app.running():
        error = await (await tasks.raises.enqueue("cancel")).exception(SOON)
    assert isinstance(error, TaskCancelled)
    assert error.reason == "not wanted"


async def test_a_result_of_a_child_that_cannot_be_stored_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with app.running():
        handle = await tasks.unstorable.enqueue()
        with pytest.raises(ResultNotStored):
            await handle.result(SOON)
        assert await handle.state() == "succeeded"
    assert [record.levelname for record in caplog.records if "cannot be stored" in record.message] == ["WARNING"]


async def test_middleware_sees_values_and_errors_of_a_child() -> None:
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


async def test_log_lines_have_the_traceback_of_a_child(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "onthedot")
    async with app.running():
        await (await tasks.raises.enqueue("own")).result(SOON)
        await (await tasks.raises.enqueue("other")).exception(SOON)
    lines = [record.getMessage() for record in caplog.records]
    assert any("[retry]" in line and "tests.support.programs.tasks.Own: mine" in line for line in lines)
    (failed,) = [record for record in caplog.records if "[fail]" in record.getMessage()]
    assert failed.getMessage().endswith(": not mine")
    assert "raise RAISED" in logging.Formatter().format(failed)


# -- how the code is found


async def test_a_task_that_no_import_defines_fails_with_advice() -> None:
    inside = tasks.declare_inside()
    try:
        async with app.running():
            error = await (await inside.enqueue()).exception(SOON)
    finally:
        app.runtime.sources.remove("inside")
    assert isinstance(error, TaskFailed)
    assert "module level" in error.message
    assert "'inside'" in error.message


async def test_a_system_without_process_groups_refuses_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "killpg")
    async with app.running():
        error = await (await tasks.add.enqueue(1, 2)).exception(SOON)
    assert isinstance(error, TaskFailed)
    assert "executor='thread'" in error.message


def run_script(name: str, *arguments: str) -> tuple[list[Any], str]:
    """The JSON lines that it prints, and its stderr."""
    with start_script(name, *arguments) as process:
        try:
            out, err = process.communicate(timeout=SOON)
        finally:
            process.kill()
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()], err


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize("script", ["guarded.py", "unguarded.py", "sleeps_on.py"])
def test_tasks_of_a_script_run_in_children(script: str, method: str) -> None:
    lines, err = run_script(script, method)
    assert lines == [{"doubled": 42, "elsewhere": True, "error": "__main__.Own"}], err
    assert err == ""


def test_tasks_of_a_module_run_with_m_run_in_children() -> None:
    command = [sys.executable, "-m", "tests.support.programs.guarded", "forkserver"]
    folder = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON, check=True, cwd=folder)
    assert json.loads(done.stdout) == {"doubled": 42, "elsewhere": True, "error": "__main__.Own"}
    assert done.stderr == ""


def test_a_task_defined_after_the_import_stopped_is_not_found(tmp_path: Path) -> None:
    lines, _ = run_script("declares_late.py")
    assert lines[0] == 42
    assert "declares_late.py:" in lines[1]
    assert "__main__" in lines[1]


def test_a_task_without_a_file_is_refused() -> None:
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


async def test_code_that_cannot_be_imported_fails_its_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
