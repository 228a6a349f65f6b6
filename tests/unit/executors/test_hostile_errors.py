"""Errors whose attributes raise or lie: each fails its own task, is logged once, and frees its slot."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from onthedot import TaskFailed
from onthedot.executors.processes import fork_server
from tests.support.programs import hostile_tasks as tasks
from tests.support.waits import SOON, until

pytestmark = [
    pytest.mark.skipif(not fork_server.is_supported(), reason="needs process groups"),
    pytest.mark.usefixtures("no_process_stays"),
]
CASES = {
    "async": (tasks.on_loop, tasks.good_on_loop),
    "thread": (tasks.in_thread, tasks.good_in_thread),
    "process": (tasks.in_process, tasks.good_in_process),
}


@pytest.mark.parametrize("executor", CASES)
async def test_hostile_error_fails_its_task_and_frees_its_slot(
    executor: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    task: Any
    good: Any
    task, good = CASES[executor]
    async with tasks.app.running():
        worker = tasks.app.runtime.worker
        assert worker is not None
        for name in tasks.ERRORS:
            caplog.clear()
            handles = [await task.enqueue(name) for _ in range(2)]  # as many as there are slots
            errors = [await handle.exception(SOON) for handle in handles]
            assert [type(error) for error in errors] == [TaskFailed] * 2, name
            assert await (await good.enqueue()).result(SOON) == "good"
            lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
            messages = sorted(record.getMessage().partition(":")[0] for record in lines)
            assert messages == sorted(f"[fail] task {handle.uuid} from {task.name}" for handle in handles), name
            for record in lines:
                assert logging.Formatter().format(record)
        await until(lambda: not worker.runs)
        both = [await good.enqueue() for _ in range(2)]
        assert await asyncio.gather(*both) == ["good"] * 2
    assert "Logging error" not in capsys.readouterr().err


@pytest.mark.parametrize("executor", CASES)
async def test_stored_error_of_a_hostile_class_has_its_name_and_its_traceback(executor: str) -> None:
    task: Any = CASES[executor][0]
    async with tasks.app.running():
        for name in ("MissingField", "NoClass", "Lying"):
            error = await (await task.enqueue(name)).exception(SOON)
            assert isinstance(error, TaskFailed)
            assert error.error_type == f"{tasks.__name__}.{name}"
            assert "raise error_class()" in error.traceback
