"""What a cancel and a timeout do to tasks that wait or run, by executor, and in how many ms.

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
    """Renamed into place, so that who sees it can read it."""
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
    while True:  # nothing asks, nothing listens
        sum(range(1000))


FUNCTIONS: dict[str, Callable[..., Any]] = {"async": on_loop, "thread": in_thread, "process": in_process}
PLAIN: dict[str, Any] = {kind: app.task(name=f"plain.{kind}", executor=kind)(f) for kind, f in FUNCTIONS.items()}
TIMED: dict[str, Any] = {
    kind: app.task(name=f"timed.{kind}", executor=kind, timeout=TIMEOUT)(f) for kind, f in FUNCTIONS.items()
}


@app.task(executor="process")
def warm() -> None:
    """So that what is measured is not the start of a process."""


def has_ended(kind: str, folder: Path) -> Callable[[], bool]:
    """The work itself, not the word of the store."""
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


@pytest.mark.parametrize("kind", KINDS)
async def test_waiting_and_cancelled(kind: str, tmp_path: Path) -> None:
    async with running(kind):
        handle = await PLAIN[kind].options(after=3600).enqueue(str(tmp_path))
        began = time.monotonic()
        assert await handle.cancel()
        assert isinstance(await handle.exception(SOON), TaskCancelled)
        told = time.monotonic() - began
    print(f"{kind} waiting cancel: ended in {told * 1000:.1f} ms")
    assert told < 0.1
    assert not (tmp_path / "began").exists()


@pytest.mark.parametrize("kind", KINDS)
async def test_waiting_with_a_timeout(kind: str, tmp_path: Path) -> None:
    async with running(kind):
        handle = await TIMED[kind].options(after=60).enqueue(str(tmp_path))
        await asyncio.sleep(TIMEOUT * 1.2)
        assert await handle.state() == "scheduled"  # its time has not begun
        await handle.cancel()


@pytest.mark.parametrize("kind", KINDS)
async def test_running_and_cancelled(kind: str, tmp_path: Path) -> None:
    async with running(kind):
        handle = await PLAIN[kind].enqueue(str(tmp_path))
        await until((tmp_path / "began").exists)
        began = time.monotonic()
        assert await handle.cancel()
        error = await handle.exception(SOON)
        told = time.monotonic() - began
        await until(has_ended(kind, tmp_path))
        ended = time.monotonic() - began
    print(f"{kind} running cancel: handle after {told * 1000:.1f} ms, work ended after {ended * 1000:.1f} ms")
    assert isinstance(error, TaskCancelled)
    assert ended < {"async": 0.1, "thread": 0.1, "process": 0.5}[kind]


@pytest.mark.parametrize("kind", KINDS)
async def test_running_and_timed_out(kind: str, tmp_path: Path) -> None:
    async with running(kind):
        handle = await TIMED[kind].enqueue(str(tmp_path))
        await until((tmp_path / "began").exists)
        began = time.monotonic()
        error = await handle.exception(SOON)
        told = time.monotonic() - began - TIMEOUT
        await until(has_ended(kind, tmp_path))  # a thread of good will too: ctx.cancelled() turns true
        ended = time.monotonic() - began - TIMEOUT
    print(f"{kind} running timeout: handle {told * 1000:+.1f} ms, work ended {ended * 1000:+.1f} ms")
    assert isinstance(error, TaskTimeout)
    assert told < 0.2
    assert ended < 0.3
