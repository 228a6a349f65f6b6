"""Cancel and timeout of pending and running tasks, per executor, with their latency in ms.

=========  ========  =======================================  =========================================
executor   state     cancel                                   timeout
=========  ========  =======================================  =========================================
async      waiting   ended at once                            does not count while it waits
async      running   CancelledError at its next await         the same, and the handle gets TaskTimeout
thread     waiting   ended at once                            does not count while it waits
thread     running   asked: ctx.cancelled() turns true        TaskTimeout at once; the thread goes on
process    waiting   ended at once                            does not count while it waits
process    running   killed with all that it has forked       the same, and the handle gets TaskTimeout
=========  ========  =======================================  =========================================

``-rP`` shows the measured times.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from onthedot import App, TaskCancelled, TaskTimeout, current_task
from onthedot.executors.processes import fork_server
from tests.support.waits import SOON, until

TIMEOUT = 0.3

app = App("cancel-table", store="memory://", threads=2, processes=2, stop_timeout=0)
KINDS = [
    "async",
    "thread",
    pytest.param("process", marks=pytest.mark.skipif(not fork_server.is_supported(), reason="needs process groups")),
]


def mark(folder: str, name: str) -> None:
    """Creates a file by renaming, so that it is complete when it is visible."""
    new = Path(folder, f"{name}.new")
    new.write_text(str(os.getpid()))
    new.rename(Path(folder, name))


async def on_loop(folder: str) -> None:
    mark(folder, "began")
    try:
        await asyncio.Event().wait()
    finally:
        mark(folder, "ended")


def in_thread(folder: str) -> None:
    mark(folder, "began")
    deadline = time.monotonic() + SOON
    while not current_task().cancelled() and time.monotonic() < deadline:
        time.sleep(0.001)
    mark(folder, "ended")
    current_task().raise_if_cancelled()


def in_process(folder: str) -> None:
    mark(folder, "began")
    while True:  # ignores every request to end
        sum(range(1000))


FUNCTIONS: dict[str, Callable[..., Any]] = {"async": on_loop, "thread": in_thread, "process": in_process}
PLAIN: dict[str, Any] = {kind: app.task(name=f"plain.{kind}", executor=kind)(f) for kind, f in FUNCTIONS.items()}
TIMED: dict[str, Any] = {
    kind: app.task(name=f"timed.{kind}", executor=kind, timeout=TIMEOUT)(f) for kind, f in FUNCTIONS.items()
}


@app.task(executor="process")
def warm() -> None:
    """Starts a child, so that its start is not part of the measurement."""


def has_ended(kind: str, folder: Path) -> Callable[[], bool]:
    """Whether the function itself has ended, whatever the store says."""
    if kind != "process":
        return (folder / "ended").exists

    def dead() -> bool:
        try:
            os.kill(int((folder / "began").read_text()), 0)
        except ProcessLookupError:
            return True
        return False

    return dead


@pytest.fixture(params=["memory", "sqlite"], autouse=True)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    with app.override(store="memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/tasks.db"):
        yield


@asynccontextmanager
async def running(kind: str) -> AsyncIterator[None]:
    async with app.running():
        if kind == "process":
            await (await warm.enqueue()).result(SOON)
        yield


@pytest.mark.timed
@pytest.mark.parametrize("kind", KINDS)
async def test_a_cancelled_pending_task_ends_at_once(kind: str, tmp_path: Path) -> None:
    async with running(kind):
        handle = await PLAIN[kind].options(after=3600).enqueue(str(tmp_path))
        began = time.monotonic()
        assert await handle.cancel()
        assert isinstance(await handle.exception(SOON), TaskCancelled)
        reported = time.monotonic() - began
    print(f"{kind} waiting cancel: ended in {reported * 1000:.1f} ms")
    assert reported < 0.1
    assert not (tmp_path / "began").exists()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_timeout_does_not_count_while_pending(kind: str, tmp_path: Path) -> None:
    async with running(kind):
        handle = await TIMED[kind].options(after=60).enqueue(str(tmp_path))
        await asyncio.sleep(TIMEOUT * 1.2)
        assert await handle.state() == "scheduled"  # the timeout has not started
        await handle.cancel()


@pytest.mark.timed
@pytest.mark.parametrize("kind", KINDS)
async def test_a_cancelled_running_task_ends_as_its_executor_can(kind: str, tmp_path: Path) -> None:
    async with running(kind):
        handle = await PLAIN[kind].enqueue(str(tmp_path))
        await until((tmp_path / "began").exists)
        began = time.monotonic()
        assert await handle.cancel()
        error = await handle.exception(SOON)
        reported = time.monotonic() - began
        await until(has_ended(kind, tmp_path))
        ended = time.monotonic() - began
    print(f"{kind} running cancel: handle after {reported * 1000:.1f} ms, work ended after {ended * 1000:.1f} ms")
    assert isinstance(error, TaskCancelled)
    assert ended < {"async": 0.1, "thread": 0.1, "process": 0.5}[kind]


@pytest.mark.timed
@pytest.mark.parametrize("kind", KINDS)
async def test_a_timed_out_task_ends_as_its_executor_can(kind: str, tmp_path: Path) -> None:
    async with running(kind):
        handle = await TIMED[kind].enqueue(str(tmp_path))
        await until((tmp_path / "began").exists)
        began = time.monotonic()
        error = await handle.exception(SOON)
        reported = time.monotonic() - began - TIMEOUT
        await until(has_ended(kind, tmp_path))  # a cooperative thread, too: ctx.cancelled() becomes true
        ended = time.monotonic() - began - TIMEOUT
    print(f"{kind} running timeout: handle {reported * 1000:+.1f} ms, work ended {ended * 1000:+.1f} ms")
    assert isinstance(error, TaskTimeout)
    assert reported < 0.2
    assert ended < 0.3
