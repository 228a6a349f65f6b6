"""Queues on every store, and conditions that the tests wait for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.mq import MessageQueue, MQConfig
from tests.support.services import valkey

SERVERS = [pytest.param(kind, marks=pytest.mark.once) for kind in ("redis", "postgres")]  # the same on every Python
STORES = ["memory", "sqlite", *SERVERS]
SHARED = ["sqlite", *SERVERS]  # by several processes
A_YEAR = 31_536_000  # seconds; the lease, because a driven clock skips heartbeats
PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "mq_worker.py"


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    match request.param:
        case "redis":
            with valkey.server() as own:
                yield f"{own.url}?lease={A_YEAR}"
        case "postgres":
            with request.getfixturevalue("postgres").database() as made:
                yield f"{made}?lease={A_YEAR}"
        case "sqlite":
            yield f"sqlite:///{tmp_path}/mq.db"
        case _:
            yield "memory://"


@pytest.fixture
def queue(url: str) -> Iterator[Callable[..., MessageQueue]]:
    """Creates queues on the store of the test, with the given clock."""
    with ExitStack() as stack:

        def make(clock: ManualClock | None = None, **config: Any) -> MessageQueue:
            mq = MessageQueue(MQConfig(url=url, **config))
            stack.enter_context(mq.app.override(clock=clock))
            return mq

        yield make


@asynccontextmanager
async def started(mq: MessageQueue) -> AsyncIterator[MessageQueue]:
    async with mq:
        assert await mq.start_background() is True
        try:
            yield mq
        finally:
            await mq.stop(timeout=0)  # with a driven clock a handler may wait forever


async def state(mq: MessageQueue, uuid: str) -> str:
    return (await mq.app.get(uuid)).state.value


async def is_state(mq: MessageQueue, uuid: str, wanted: str) -> bool:
    return await state(mq, uuid) == wanted


async def succeeded(mq: MessageQueue, topic: str, count: int) -> bool:
    return (await mq.metrics())[topic].get("succeeded") == count


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts processes that handle messages; they are killed at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(url: str, file: Path, **env: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(PROGRAM), url, str(file)]
        started.append(subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()
