"""Attempts have times: each stored error has the start and the end of its run, and the worker."""

from __future__ import annotations

import pytest

from onthedot import App, Reject, TaskFunction
from onthedot.errors import TaskFailed
from tests.support.waits import SOON

app = App("attempt_times", store="memory://")


@app.task(executor="thread")
def in_thread() -> None:
    raise Reject("later")


@app.task(executor="process")
def in_process() -> None:
    raise Reject("later")


async def test_errors_of_all_attempts_have_their_times_and_worker() -> None:
    app = App(store="memory://")

    @app.task(max_retries=1, backoff=0.0)
    async def fails() -> None:
        raise ValueError("not today")

    async with app.running():
        handle = await fails.enqueue()
        with pytest.raises(TaskFailed):
            await handle.result(SOON)
        info = await app.get(handle.uuid)
        (worker,) = await app.operations.workers()
    assert info.error is not None
    errors = (*info.errors, info.error)
    assert [error.attempt for error in errors] == [1, 2]
    times = [moment for error in errors for moment in (error.started_at, error.ended_at)]
    assert None not in times
    assert times == sorted(times, key=str)
    assert {error.worker for error in errors} == {worker.id}
    assert info.to_dict()["errors"][0]["started_at"].endswith("Z")


@pytest.mark.parametrize("task", [in_thread, in_process])
async def test_errors_of_other_executors_have_times(task: TaskFunction[[], None, None]) -> None:
    async with app.running():
        handle = await task.enqueue()
        with pytest.raises(TaskFailed):
            await handle.result(SOON)
        info = await app.get(handle.uuid)
    assert info.error is not None
    assert info.error.message == "later"
    assert info.error.started_at is not None
    assert info.error.ended_at is not None


async def test_worker_shows_the_release_of_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONTHEDOT_RELEASE", "2026.11.3")
    app = App(store="memory://")
    async with app.running():
        assert [worker.release for worker in await app.operations.workers()] == ["2026.11.3"]
