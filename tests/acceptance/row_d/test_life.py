"""The message queue: start, stop, status and health."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from onthedot import SchedulerStateError
from onthedot.mq import MessageQueue
from tests.acceptance.queues import SHARED, is_state, started, state, succeeded
from tests.support.waits import SOON, every_chance, until

pytestmark = pytest.mark.usefixtures("no_thread_left", "no_hidden_trouble")


# -- start and stop


async def test_start_runs_until_stop(queue: Any, caplog: pytest.LogCaptureFixture) -> None:
    mq = queue()
    got = []
    mq.register_handler("orders", got.append)
    assert (mq.is_running(), mq.status["status"]) == (False, "stopped")
    async with mq:
        running = asyncio.create_task(mq.start())
        await until(mq.is_running)
        assert await mq.start() is False
        assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
            "start() has no effect: already running"
        ]
        await mq.produce("orders", 1)
        await until(lambda: got == [1])
        assert not running.done()
        assert await mq.stop() is True
        assert await running is True
        assert (mq.is_running(), mq.status["topics"]) == (False, ["orders"])
        assert await mq.stop() is False


async def test_cancelled_start_stops_in_order(queue: Any) -> None:
    mq = queue()
    gate = asyncio.Event()
    ended = []

    @mq.register_handler("orders")
    async def waits(_: object) -> None:
        await gate.wait()
        ended.append(1)

    running = asyncio.create_task(mq.start())
    await mq.produce("orders", 1)
    await until(lambda: mq.status["running_count"] == 1)
    running.cancel()
    await until(lambda: mq.status["status"] == "stopping")
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (ended, mq.status["status"]) == ([1], "stopped")


async def test_stop_finishes_running_messages_and_keeps_pending_ones(queue: Any) -> None:
    mq = queue(max_workers=1)
    gate = asyncio.Event()
    began = []
    got = []

    @mq.register_handler("orders")
    async def waits(n: int) -> None:
        began.append(n)
        await gate.wait()
        got.append(n)

    async with mq:
        await mq.start_background()
        for n in range(3):
            await mq.produce("orders", n)
        await until(lambda: began == [0])
        stopping = asyncio.create_task(mq.stop())
        await until(lambda: mq.status["status"] == "stopping")
        await every_chance()
        assert not stopping.done()
        gate.set()
        assert await stopping is True
        assert got == [0]
        assert (await mq.metrics())["orders"]["ready"] == 2
        await mq.start_background()
        await until(lambda: got == [0, 1, 2])


async def test_stop_with_a_timeout_requeues_without_counting_an_attempt(queue: Any) -> None:
    mq = queue()
    gate = asyncio.Event()
    began = []

    @mq.register_handler("orders")
    async def waits(n: int) -> None:
        began.append(n)
        await gate.wait()

    async with mq:
        await mq.start_background()
        uuid = await mq.produce("orders", 1)
        await until(lambda: began == [1])
        assert await mq.stop(timeout=0) is True
        info = await mq.app.get(uuid)
        assert (info.state.value, info.attempt) == ("ready", 1)
        gate.set()
        await mq.start_background()
        await until(lambda: is_state(mq, uuid, "succeeded"))
        assert began == [1, 1]


async def test_run_ends_after_its_duration(queue: Any) -> None:
    mq = queue()
    got = []
    mq.register_handler("orders", got.append)
    await mq.produce("orders", 1)
    began = time.monotonic()
    await mq.run(duration=0.3)
    assert time.monotonic() - began >= 0.3
    assert (got, mq.status["status"]) == ([1], "stopped")


async def test_second_start_of_a_running_queue_is_refused(queue: Any) -> None:
    mq = queue()
    mq.register_handler("orders", print)
    async with started(mq):
        with pytest.raises(SchedulerStateError):
            mq.app.start(auto=True)


# -- status


async def test_metrics_status_and_health_describe_the_queue(queue: Any) -> None:
    mq = queue()
    gate = asyncio.Event()

    @mq.register_handler("orders")
    async def handle(n: int) -> None:
        await gate.wait()

    async with mq:
        assert (await mq.metrics(), bool(await mq.health_check())) == ({}, True)
        await mq.start_background()
        await mq.produce("orders", 1)
        await mq.produce("orders", 2, delay=100)
        await until(lambda: mq.status["running_count"] == 1)
        assert await mq.metrics() == {"orders": {"running": 1, "scheduled": 1}}
        assert mq.status == {"status": "running", "topics": ["orders"], "running_count": 1, "last_error": None}
        health = await mq.health_check()
        gate.set()  # first, so that also a failing test can end
        assert health
        by_server = ["clock"] if mq.config.store.startswith(("redis", "postgresql")) else []
        assert [check.what for check in health.checks] == ["store", "served", "running", "failures", *by_server]
        await until(lambda: mq.status["running_count"] == 0)
        await until(lambda: succeeded(mq, "orders", 1))
    assert (await mq.metrics())["orders"] == {"succeeded": 1, "scheduled": 1}


async def test_health_check_reports_an_unreachable_store(tmp_path: Path) -> None:
    mq = MessageQueue(f"sqlite:///{tmp_path}/nowhere/mq.db")
    with mq.app.override():
        health = await mq.health_check()
    assert not health
    assert [(check.ok, check.what) for check in health.checks] == [(False, "store")]


# -- several processes


@pytest.mark.once
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("url", SHARED[:1], indirect=True)
async def test_signal_ends_run_after_running_messages(
    queue: Any, url: str, tmp_path: Path, start: Any, number: signal.Signals
) -> None:
    process = start(url, tmp_path / "handled", SECONDS="0.3")
    async with queue() as mq:
        uuid = await mq.produce("burst", 1)
        await until(lambda: is_state(mq, uuid, "running"))
        process.send_signal(number)
        assert process.communicate(timeout=SOON)[0] == "stopped stopped\n"
        assert (process.returncode, await state(mq, uuid)) == (0, "succeeded")
