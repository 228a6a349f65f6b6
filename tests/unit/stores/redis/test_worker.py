"""An app on Redis, end to end: killed workers, a server that does not answer or restarts."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onthedot import App, CronSchedule, IntervalSchedule
from tests.faults import task_app
from tests.faults.run_log import RunLog, extra_runs, takeover_times
from tests.faults.worker_processes import wait_for, worker_processes
from tests.support.services import valkey
from tests.support.waits import until

pytestmark = pytest.mark.fault
LEASE = 1.0


@pytest.fixture
def url(server: valkey.Server) -> str:
    return f"{server.url}?lease={LEASE}"


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App("shop", store=url, stop_timeout=0)
    yield app
    app.shutdown()


def test_tasks_of_a_killed_worker_run_after_its_lease(url: str, tmp_path: Path) -> None:
    run_log = RunLog(tmp_path / "run_log")
    with task_app.app.override(store=url), worker_processes(url, tmp_path / "run_log", 2) as workers:
        handles = [task_app.work.delay(number) for number in range(100)]
        assert [handle.result(timeout=30) for handle in handles] == list(range(100))
        long = [task_app.slow.delay(2 * LEASE) for _ in range(2 * task_app.SLOTS)]
        wait_for(lambda: {begun(run_log, handle.uuid) for handle in long} == {True}, 20)
        pid, died = workers.kill(0)
        assert [handle.result(timeout=30) for handle in long] == ["slow"] * len(long)
        crashes = [handle.info().crashes for handle in long]
    entries = run_log.entries()
    run_log.close()
    overs = takeover_times(entries, pid, died)
    assert 0 < len(overs) <= sum(crashes)  # more, if this machine let another worker starve for a lease
    assert extra_runs(entries) == sum(crashes)


def begun(run_log: RunLog, uuid: str) -> bool:
    return any(entry.uuid == uuid for entry in run_log.entries())


async def test_runs_are_cancelled_after_a_lease_without_an_answer(
    app: App, server: valkey.Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Another worker may have the task by then. When the server is back, it runs again in a new session."""
    ends: list[str] = []

    @app.task
    async def long() -> str:
        try:
            if len(ends) == 0:
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append("ended")
            raise
        ends.append("done")
        return "done"

    pid = server.pid
    async with app.running():
        handle = await long.enqueue()
        await until(lambda: app.runtime.worker is not None and app.runtime.worker.runs)
        os.kill(pid, signal.SIGSTOP)
        try:
            await until(lambda: ends == ["ended"], timeout=20)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert await handle.result(timeout=20) == "done"
    assert ends == ["ended", "done"]


async def test_schedule_fires_once_for_all_workers(url: str) -> None:
    runs: list[str] = []

    def made(name: str) -> App:
        app = App("shop", store=url, stop_timeout=0)

        @app.schedule(schedule=IntervalSchedule(interval=0.25))
        async def tick() -> None:
            runs.append(name)

        @app.schedule(schedule=CronSchedule("0 3 1 1 *"))
        async def rarely() -> None: ...

        return app

    apps = [made("one"), made("two"), made("three")]
    async with apps[0].running(), apps[1].running(), apps[2].running():
        began = time.monotonic()
        await until(lambda: len(runs) >= 8, timeout=20)
        took = time.monotonic() - began
        schedules = {each.name: each for each in (await apps[0].runtime.store.schedules())}
    assert len(runs) <= took / 0.25 + 2
    assert schedules["rarely"].runs == 0


async def test_pending_tasks_survive_a_server_restart(safe: valkey.Server) -> None:
    app = App("shop", store=safe.url, stop_timeout=0)

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    async with app.running():
        assert await (await add.enqueue(1, 2)).result(timeout=10) == 3
        later = await add.options(after=1.0).enqueue(3, 4)
        await asyncio.to_thread(safe.kill)
        await asyncio.to_thread(safe.start, safe.port)
        assert await later.result(timeout=20) == 7
        assert await (await add.enqueue(5, 6)).result(timeout=10) == 11


def test_forked_process_opens_its_own_connections(url: str) -> None:
    app = App("shop", store=url)

    @app.task
    async def nothing() -> None: ...

    first: Any = nothing.delay()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if nothing.delay().added and first.state() == "ready" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert nothing.delay().added
    app.shutdown()
