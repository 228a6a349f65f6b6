"""Seed 003, as its author would check it: delays to the millisecond, contention, retries, dead letters, monitors."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from onthedot import ArgumentError, DeclarationError, DuplicateTask, SchedulerStateError
from onthedot.clock import ManualClock
from onthedot.mq import MessageQueue, MQConfig, RedisMessageQueue
from onthedot.settings import SCHEMES
from tests.faults import scaled
from tests.services import valkey
from tests.waiting import LONG, SOON, every_chance, until, wait_until

pytestmark = pytest.mark.usefixtures("no_thread_left", "no_hidden_trouble")

SERVERS = [pytest.param(kind, marks=pytest.mark.once) for kind in ("redis", "postgres")]  # the same on every Python
STORES = ["memory", "sqlite", *SERVERS]
SHARED = ["sqlite", *SERVERS]  # by several processes
A_YEAR = 31_536_000  # seconds: as lease, since a clock that is turned leaps over beats
PROGRAM = Path(__file__).parents[1] / "processes" / "mq_worker.py"


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
    """Makes queues on the store of the test, by its clock if one is given."""
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
            await mq.stop(timeout=0)  # by the test's clock, a handler may wait for ever


async def idle(mq: MessageQueue) -> None:
    """Until it has looked at everything and sleeps."""
    worker = mq._core.worker
    assert worker is not None
    worker.quiet.clear()
    worker.wake.set()
    await until(worker.quiet.is_set)


async def state(mq: MessageQueue, uuid: str) -> str:
    return (await mq.app.get(uuid)).state.value


# -- messages and handlers


async def test_what_goes_in_comes_out(queue: Any) -> None:
    mq, got = queue(max_workers=1), []  # in their order
    mq.register_handler("any", got.append)
    payloads = [
        None,
        17,
        1.5,
        "ä",
        [1, {"a": None}],
        {"n": 1},
        (1, 2),
        Decimal("1.50"),
        datetime(2026, 1, 1, tzinfo=UTC),
    ]
    async with started(mq):
        for payload in payloads:
            await mq.produce("any", payload)
        await until(lambda: len(got) == len(payloads))
    assert got == payloads
    assert [type(each) for each in got] == [type(each) for each in payloads]


@dataclass
class Order:
    id: int
    lines: list[str]


async def test_an_annotation_decides(queue: Any) -> None:
    mq, got = queue(), []

    class Shop:
        async def ship(self, order: Order) -> None:
            got.append(order)

    mq.register_handler("orders", Shop().ship)
    with pytest.raises(ArgumentError, match="'payload' cannot be stored"):
        await mq.produce("orders", {"id": 1})
    async with started(mq):
        await mq.produce("orders", Order(1, ["tea"]))
        await until(lambda: got == [Order(1, ["tea"])])


@pytest.mark.parametrize("url", SHARED, indirect=True)
async def test_who_produces_needs_not_the_handler(queue: Any) -> None:
    consumer, producer, got = queue(max_workers=1), queue(), []

    @consumer.register_handler("orders")
    def handle(order: dict[str, tuple[int, str]]) -> None:
        got.append(order)

    await producer.produce("orders", {"a": (1, "tea")})
    async with started(consumer):
        await producer.produce("orders", {"b": (2, "cup")})
        await until(lambda: got == [{"a": (1, "tea")}, {"b": (2, "cup")}])


async def test_handlers_are_functions_methods_and_objects_sync_or_async(queue: Any) -> None:
    mq, got = queue(), []

    class Callable_:
        async def __call__(self, payload: str) -> None:
            got.append(payload)

    @mq.register_handler("decorated")
    def decorated(text: str = "") -> None:
        got.append(text)

    assert decorated("plain") is None, "it is still the function"
    assert got.pop() == "plain"
    mq.register_handler("object", Callable_())
    mq.register_handler("lambda", lambda text: got.append(text))
    mq.register_handler("any", lambda *all_: got.append(*all_))
    async with started(mq):
        for topic in ("decorated", "object", "lambda", "any"):
            await mq.produce(topic, topic)
        await until(lambda: len(got) == 4)
    assert sorted(got) == ["any", "decorated", "lambda", "object"]


def test_bad_handlers_and_topics() -> None:
    mq = MessageQueue("memory://")
    with pytest.raises(DeclarationError, match=r"topic 'a': .* must take one argument, the payload"):
        mq.register_handler("a", lambda: None)
    with pytest.raises(DeclarationError, match="must take one argument, the payload: missing a required"):
        mq.register_handler("a", lambda one, two: None)
    with pytest.raises(ValueError, match="topic 'a b' is not a name"):
        mq.register_handler("a b", print)
    mq.register_handler("a", print)
    with pytest.raises(DuplicateTask, match="topic 'a' has a handler already, <built-in function print>"):
        mq.register_handler("a", print)


async def test_max_workers_counts_sync_and_async_handlers_together(queue: Any) -> None:
    mq, gate, running = queue(max_workers=3, batch_size=2), asyncio.Event(), Counter[str]()
    go_on = False

    @mq.register_handler("async")
    async def waits(_: int) -> None:
        running["async"] += 1
        await gate.wait()

    @mq.register_handler("sync")
    def blocks(_: int) -> None:
        running["sync"] += 1
        wait_until(lambda: go_on)

    for n in range(4):
        await mq.produce("async", n)
        await mq.produce("sync", n)
    async with started(mq):
        await until(lambda: running.total() == 3)
        await every_chance()
        assert mq.status["running_count"] == running.total() == 3
        go_on = True
        gate.set()
        await until(lambda: running.total() == 8)


# -- time


async def test_in_the_order_of_their_times_to_the_millisecond(queue: Any) -> None:
    clock = ManualClock()
    mq, got = queue(clock), []
    mq.register_handler("orders", got.append)
    async with started(mq):
        for delay in (0.3, 0.1005, 0.1, 0.2):
            await mq.produce("orders", delay, delay=delay)
        for to, due in ((99, []), (100, [0.1]), (101, [0.1, 0.1005]), (199, [0.1, 0.1005]), (200, [0.1, 0.1005, 0.2])):
            clock.advance(to - (clock.now() - ManualClock().now()))
            await until(lambda due=due: len(got) == len(due))
            await idle(mq)
            assert got == due
        clock.advance(100)
        await until(lambda: got[-1] == 0.3)


async def test_500_delays_none_early(queue: Any) -> None:
    mq, chance = queue(max_workers=50), random.Random(3)
    handled: dict[int, float] = {}
    asked: dict[int, float] = {}
    mq.register_handler("orders", lambda n: handled.__setitem__(n, time.time()))
    delays = [chance.uniform(0.05, 2) for _ in range(500)]
    async with started(mq):
        for n, delay in enumerate(delays):
            asked[n] = time.time() + delay
            await mq.produce("orders", n, delay=delay, message_id=f"m{n}")
        await until(lambda: len(handled) == 500)
        await mq.stop()
        found = list(await mq.app.find(limit=1000))
    early = [n for n in range(500) if handled[n] < asked[n] - 0.001]  # two clocks are asked one after the other
    assert early == []
    assert [info.uuid for info in found if info.started_at is None or info.started_at < info.schedule_at] == []
    assert len(found) == 500


async def test_an_earlier_one_that_comes_later_wakes_an_idle_queue(queue: Any) -> None:
    """With a fallback that nobody waits for."""
    mq, got = queue(delay_fallback_interval=300), []
    mq.register_handler("orders", got.append)
    async with started(mq):
        await mq.produce("orders", "late", delay=200)
        await idle(mq)
        await mq.produce("orders", "early", delay=0.05)
        await until(lambda: got == ["early"])


async def test_a_priority_goes_first_and_is_no_stack(queue: Any) -> None:
    mq, got = queue(max_workers=1), []
    mq.register_handler("orders", got.append)
    for n in range(3):
        for priority in ("low", "normal", "high"):
            await mq.produce("orders", (priority, n), priority=priority)
    async with started(mq):
        await until(lambda: len(got) == 9)
    assert got == [(priority, n) for priority in ("high", "normal", "low") for n in range(3)]


# -- ids and lifetimes


async def test_the_same_id_twice_the_first_stands(queue: Any) -> None:
    mq, got = queue(), []
    mq.register_handler("orders", got.append)
    assert await mq.produce("orders", 1, message_id="order-1") == "order-1"
    assert await mq.produce("orders", 1, message_id="order-1") == "order-1"
    async with started(mq):
        await until(lambda: got == [1])
        assert await mq.produce("orders", 1, delay=5, message_id="order-1") == "order-1", "also after its end"
        assert await mq.produce("orders", 2) not in ("", "order-1")
        await until(lambda: got == [1, 2])
        await idle(mq)
    assert got == [1, 2]
    with pytest.raises(ValueError, match="uuid 'no id' is not an id"):
        await mq.produce("orders", 1, message_id="no id")


async def test_ttl_ends_what_has_not_started(queue: Any) -> None:
    clock = ManualClock()
    mq, got = queue(clock, message_ttl=100), []
    mq.register_handler("orders", got.append)
    async with started(mq):
        await mq.app.pause("orders")
        default = await mq.produce("orders", "default")
        short = await mq.produce("orders", "short", delay=2, ttl=10)
        await idle(mq)
        clock.advance(9_999)
        await idle(mq)
        assert (await state(mq, short), await state(mq, default)) == ("ready", "ready")
        clock.advance(1)
        await until(lambda: is_state(mq, short, "cancelled"))
        assert (await mq.app.get(short)).reason == "expired"
        await idle(mq)
        clock.advance(90_000)
        await until(lambda: is_state(mq, default, "cancelled"))
        await mq.app.resume("orders")
        await idle(mq)
        assert (got, (await mq.metrics())["orders"]["cancelled"]) == ([], 2)
        assert await mq.dead_letters() == [], "they have not failed"


async def is_state(mq: MessageQueue, uuid: str, wanted: str) -> bool:
    return await state(mq, uuid) == wanted


async def test_ttl_does_not_touch_what_runs(queue: Any) -> None:
    clock, gate = ManualClock(), asyncio.Event()
    mq = queue(clock)

    @mq.register_handler("orders")
    async def waits(_: object) -> None:
        await gate.wait()

    async with started(mq):
        uuid = await mq.produce("orders", 1, ttl=10)
        await until(lambda: mq.status["running_count"] == 1)
        clock.advance(20_000)
        await every_chance()
        gate.set()
        await until(lambda: is_state(mq, uuid, "succeeded"))


async def test_a_ttl_that_ends_before_the_delay_is_refused(queue: Any) -> None:
    mq = queue(message_ttl=60)
    for delay, ttl, words in ((10, 10, "ttl=10 <= delay=10"), (60, None, "message_ttl=60 <= delay=60")):
        with pytest.raises(ArgumentError, match=f"message for 'orders': it would expire first, {words}"):
            await mq.produce("orders", 1, delay=delay, ttl=ttl)
    for wrong in ({"delay": -1}, {"delay": "1"}, {"ttl": float("nan")}, {"priority": "urgent"}):
        with pytest.raises((TypeError, ValueError)):
            await mq.produce("orders", 1, **wrong)
    assert await mq.metrics() == {}


# -- failures


async def test_retries_come_at_their_times_without_the_fallback(queue: Any) -> None:
    clock = ManualClock()
    begin = clock.now()
    mq, attempts = queue(clock, delay_fallback_interval=300, max_retries=2, retry_delays=[0.2, 0.4]), []

    @mq.register_handler("orders")
    async def fails(_: object) -> None:
        attempts.append(clock.now() - begin)
        raise OSError("no answer")

    async with started(mq):
        uuid = await mq.produce("orders", {"id": 1})
        for to, moments in ((0, [0]), (199, [0]), (200, [0, 200]), (599, [0, 200]), (600, [0, 200, 600])):
            clock.advance(to - (clock.now() - begin))
            await until(lambda moments=moments: len(attempts) == len(moments))
            await idle(mq)
            assert attempts == moments
        await until(lambda: is_state(mq, uuid, "failed"))
        (letter,) = await mq.dead_letters("orders")
        assert await mq.dead_letters("others") == []
    assert (letter.uuid, letter.args, letter.attempt) == (uuid, {"payload": {"id": 1}}, 3)
    assert letter.error is not None
    assert (letter.error.type, letter.error.message) == ("OSError", "no answer")


async def test_retries_in_real_time_on_an_idle_queue(queue: Any) -> None:
    mq, moments = queue(delay_fallback_interval=300, max_retries=2, retry_delays=[0.2, 0.4]), []

    @mq.register_handler("orders")
    async def fails(_: object) -> None:
        moments.append(time.monotonic())
        raise OSError("no answer")

    async with started(mq):
        await mq.produce("orders", 1)
        await until(lambda: len(moments) == 3)  # far sooner than the fallback
    assert moments[1] - moments[0] >= 0.2
    assert moments[2] - moments[1] >= 0.4


async def test_dead_letters_are_looked_at_and_retried(queue: Any) -> None:
    mq, broken, got = queue(max_retries=0, retry_delays=[]), True, []

    @mq.register_handler("orders")
    def handle(n: int) -> None:
        if broken:
            raise ValueError(f"order {n}")
        got.append(n)

    async with started(mq):
        ids = [await mq.produce("orders", n) for n in range(5)]
        await until(lambda: failed(mq, 5))
        letters = await mq.dead_letters()
        assert [letter.args["payload"] for letter in letters] == [4, 3, 2, 1, 0]
        assert len(await mq.dead_letters(limit=2)) == 2
        broken = False
        assert await mq.retry(ids[0]) == [ids[0]]
        await until(lambda: got == [0])
        assert await mq.retry([*ids[1:], "nobody"]) == ids[1:]
        await until(lambda: sorted(got) == [0, 1, 2, 3, 4])
        await until(lambda: failed(mq, 0))


async def failed(mq: MessageQueue, count: int) -> bool:
    return len(await mq.dead_letters()) == count


async def test_a_handler_that_takes_too_long_fails(queue: Any) -> None:
    clock, begun = ManualClock(), []
    mq = queue(clock, handler_timeout=30, handler_timeouts={"quick": 2}, max_retries=1, retry_delays=[5])
    for topic in ("slow", "quick"):

        @mq.register_handler(topic)
        async def hangs(_: object, topic: str = topic) -> None:
            begun.append(topic)
            await asyncio.Event().wait()

    async with started(mq):
        slow, quick = await mq.produce("slow", 1), await mq.produce("quick", 1)
        await until(lambda: len(begun) == 2)
        clock.advance(1_999)
        await every_chance()
        assert await state(mq, quick) == "running"
        clock.advance(1)
        await until(lambda: is_state(mq, quick, "scheduled"))
        assert await state(mq, slow) == "running"
        await until(lambda: clock.now() + 5_000 in timers(clock))
        clock.advance(5_000)
        await until(lambda: len(begun) == 3 and clock.now() + 2_000 in timers(clock))
        clock.advance(2_000)
        await until(lambda: is_state(mq, quick, "failed"))
        (letter,) = await mq.dead_letters()
        assert letter.error is not None
        assert letter.error.message == "no result after 2 s"
        clock.advance(30_000)
        await until(lambda: is_state(mq, slow, "scheduled"))


# -- start and stop


async def test_start_lasts_until_stop(queue: Any, caplog: pytest.LogCaptureFixture) -> None:
    mq, got = queue(), []
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


async def test_a_cancelled_start_stops_in_order(queue: Any) -> None:
    mq, gate, ended = queue(), asyncio.Event(), []

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


async def test_stop_finishes_what_runs_and_keeps_what_waits(queue: Any) -> None:
    mq, gate, began, got = queue(max_workers=1), asyncio.Event(), [], []

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


async def test_stop_with_a_timeout_gives_back_uncounted(queue: Any) -> None:
    mq, gate, began = queue(), asyncio.Event(), []

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


async def test_run_for_a_while(queue: Any) -> None:
    mq, got = queue(), []
    mq.register_handler("orders", got.append)
    await mq.produce("orders", 1)
    began = time.monotonic()
    await mq.run(duration=0.3)
    assert time.monotonic() - began >= 0.3
    assert (got, mq.status["status"]) == ([1], "stopped")


async def test_two_ways_at_once_are_refused(queue: Any) -> None:
    mq = queue()
    mq.register_handler("orders", print)
    async with started(mq):
        with pytest.raises(SchedulerStateError):
            mq.app.start(auto=True)


# -- looking


async def test_metrics_status_and_health(queue: Any) -> None:
    mq, gate = queue(), asyncio.Event()

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
        gate.set()  # first: nothing ends while it is shut, also not a test that fails
        assert health
        by_server = ["clock"] if mq.config.store.startswith(("redis", "postgresql")) else []
        assert [check.what for check in health.checks] == ["store", "served", "running", "failures", *by_server]
        await until(lambda: mq.status["running_count"] == 0)
        await until(lambda: succeeded(mq, "orders", 1))
    assert (await mq.metrics())["orders"] == {"succeeded": 1, "scheduled": 1}


async def succeeded(mq: MessageQueue, topic: str, count: int) -> bool:
    return (await mq.metrics())[topic].get("succeeded") == count


async def test_a_store_that_cannot_be_reached_is_told_by_the_health(tmp_path: Path) -> None:
    mq = MessageQueue(f"sqlite:///{tmp_path}/nowhere/mq.db")
    with mq.app.override():
        health = await mq.health_check()
    assert not health
    assert [(check.ok, check.what) for check in health.checks] == [(False, "store")]


async def test_the_monitor_warns_once_of_failures(queue: Any, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    mq = queue(clock, monitor_interval=30, max_retries=0, delay_fallback_interval=3600, processing_timeout=A_YEAR)

    @mq.register_handler("orders")
    async def handle(fails: bool) -> None:
        if fails:
            raise ValueError("no")

    async with started(mq):
        for n in range(101):
            await mq.produce("orders", n == 0)
        await until(lambda: all_ended(mq, 101))
        await look_again(clock, mq)
        assert warnings(caplog) == [], "1 of 101 is not more than a hundredth"
        for _ in range(2):
            await mq.produce("orders", True)
        await until(lambda: all_ended(mq, 103))
        await look_again(clock, mq)
        told = ["[monitor] failures: 2 of 2 runs failed, most of them of orders; see `onthedot failed`"]
        assert warnings(caplog) == told
        for _ in range(19):
            await mq.produce("orders", True)
            await look_again(clock, mq)
        assert warnings(caplog) == told, "not again within ten minutes"
        await mq.produce("orders", True)
        await until(lambda: all_ended(mq, 123))
        await look_again(clock, mq)
        assert len(warnings(caplog)) == 2


async def all_ended(mq: MessageQueue, count: int) -> bool:
    counts = (await mq.metrics())["orders"]
    return counts.get("succeeded", 0) + counts.get("failed", 0) == count


async def look_again(clock: ManualClock, *queues: MessageQueue) -> None:
    """An interval later, when all monitors have looked."""

    def looked() -> bool:
        return timers(clock).count(clock.now() + 30_000) == len(queues)

    await until(looked)
    clock.advance(30_000)
    await until(looked)


def timers(clock: ManualClock) -> list[float]:
    return [at for at, _, timer in clock._timers if timer.callback is not None]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for record in caplog.records if "[monitor]" in (line := record.getMessage())]


# -- settings


def test_settings_are_frozen_and_have_the_seeds_names() -> None:
    config = MQConfig()
    assert RedisMessageQueue is MessageQueue
    assert config.store == "redis://localhost:6379/0?max_connections=10"
    assert config.retry_delays == [60, 300, 1800]
    with pytest.raises(AttributeError):
        config.max_workers = 3  # type: ignore[misc]
    delays = [1.0]
    kept = MQConfig(retry_delays=delays)
    delays.append(2.0)
    assert kept.retry_delays == [1.0]
    assert MQConfig(url="sqlite:///x.db").store == "sqlite:///x.db"
    assert MessageQueue("memory://").config == MQConfig(url="memory://")
    assert MQConfig(url="redis://h/1?max_connections=3").store == "redis://h/1?max_connections=3"
    assert "s3cret" not in repr(MQConfig(redis_password="s3cret"))


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(DeclarationError) as caught:
        MQConfig(url="http://x", max_worker=3, batch_size=1001, handler_timeout="60", retry_delays=[1, True])  # type: ignore[call-arg, arg-type]
    assert str(caught.value).splitlines() == [
        "MQConfig: 5 wrong",
        f"  url='http://x': must be the URL of a store: {', '.join(f'{scheme}://' for scheme in SCHEMES)}",
        "  max_worker: there is no such field; did you mean max_workers?",
        "  batch_size=1001: must be a whole number from 1 to 1000",
        "  handler_timeout='60': must be a number of seconds from 0.001 to 31536000",
        "  retry_delays=[1, True]: must be a list, each a number of seconds from 0 to 31536000",
    ]


RANGES: dict[str, tuple[list[Any], list[Any]]] = {  # field: what is right, what is wrong
    "url": (["memory://", None], ["", "x", b"memory://", 1]),
    "redis_host": (["h"], ["", None, 1]),
    "redis_port": ([1, 65_535], [0, 65_536, "6379", 1.0, True, None]),
    "redis_db": ([0, 15], [-1, True]),
    "redis_password": (["x", None], ["", 1]),
    "redis_ssl": ([True], [1, "yes", None]),
    "redis_max_connections": ([1, 10_000], [0, 10_001]),
    "queue_prefix": (["a.b:c-d_1"], ["", "a b", "a\n", "x" * 201, None]),
    "max_workers": ([1, 10_000], [0, 10_001, 5.0, True]),
    "batch_size": ([1, 1000], [0, 1001]),
    "delay_fallback_interval": ([0.1, 3600], [0, 3601, "10", True, float("nan")]),
    "message_ttl": ([0.001, 31_536_000], [0, 31_536_001, float("inf")]),
    "processing_timeout": ([60, 31_536_000], [0, -1, None]),
    "handler_timeout": ([0.001, 180], [0, timedelta(seconds=1)]),
    "handler_timeouts": ([{}, {"a": 1.5}], [None, [1], {"a": 0}, {1: 1}, {"a b": 1}]),
    "max_retries": ([0, 1000], [-1, 1001, 1.0]),
    "retry_delays": ([[0], (1, 2.5)], [None, 5, "abc", [-1], [True], [None]]),
    "monitor_interval": ([0.1, 86_400], [0, 86_401]),
}


@pytest.mark.parametrize("name", RANGES)
def test_each_field_takes_what_is_in_its_range_and_changes_nothing(name: str) -> None:
    assert sorted(RANGES) == sorted(MQConfig.__dataclass_fields__)
    for right in RANGES[name][0]:
        kept = getattr(MQConfig(**{name: right}), name)
        assert kept == (list(right) if isinstance(right, tuple) else right)
        assert type(kept) is type(right) or name == "retry_delays"
    for wrong in RANGES[name][1]:
        with pytest.raises(DeclarationError, match=rf"^MQConfig: 1 wrong\n  {name}=.*: must be "):
            MQConfig(**{name: wrong})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"url": "memory://", "redis_host": "h"}, "url and redis_host: give one or the other"),
        ({"handler_timeout": 181}, "handler_timeout=181: must not be more than processing_timeout, which is 180"),
        ({"handler_timeouts": {"a": 200}}, r"handler_timeouts\['a'\]=200: must not be more"),
        ({"retry_delays": []}, "retry_delays: must have at least one delay, unless max_retries=0"),
    ],
)
def test_fields_that_contradict_each_other(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        MQConfig(**given)


# -- several processes


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts processes that handle messages; killed in the end if they have not ended by themselves."""
    started: list[subprocess.Popen[str]] = []

    def begin(url: str, file: Path, **env: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(PROGRAM), url, str(file)]
        started.append(subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.once
@pytest.mark.timeout(300)
@pytest.mark.parametrize("url", SHARED, indirect=True)
async def test_four_processes_share_what_is_due_in_one_millisecond(
    queue: Any, url: str, tmp_path: Path, start: Any
) -> None:
    """Each once, and none of them gets less than 15 %. A handler takes a while, so that slots are what counts."""
    count, workers = scaled(1_000, 20_000), scaled(5, 100)
    files = [tmp_path / f"handled-{n}" for n in range(4)]
    processes = [start(url, file, WORKERS=str(workers), SECONDS="0.05") for file in files]
    async with queue() as mq:
        store = mq._core.store
        await until(lambda: workers_of(store, 4), LONG)
        due = datetime.now(UTC) + timedelta(seconds=scaled(1, 6))
        await mq.app.named("burst").options(at=due).enqueue_many([{"payload": n} for n in range(count)])
        await until(lambda: succeeded(mq, "burst", count), scaled(60, 200))
    for process in processes:
        process.send_signal(signal.SIGTERM)
    assert [process.communicate(timeout=SOON)[0] for process in processes] == ["stopped stopped\n"] * 4
    handled = [[int(line) for line in file.read_text().split()] for file in files]
    shares = [len(each) / count for each in handled]
    print("shares", ", ".join(f"{share:.1%}" for share in shares))
    assert sorted(n for each in handled for n in each) == list(range(count))
    assert min(shares) >= 0.15


async def workers_of(store: Any, count: int) -> bool:
    return len((await store.state())[2]) == count


@pytest.mark.parametrize("url", SHARED, indirect=True)
async def test_of_two_workers_one_warns(queue: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Of messages that nobody handles; when it is gone, the other does."""
    clock = ManualClock()
    first, second, producer = (queue(clock, delay_fallback_interval=3600, processing_timeout=A_YEAR) for _ in range(3))
    for mq in (first, second):
        mq.register_handler("orders", print)
    async with started(first):
        await until(lambda: workers_of(first._core.store, 1))
        async with started(second):
            await producer.produce("emails", 1, ttl=86_400)
            for _ in range(3):
                assert warnings(caplog) == []
                await look_again(clock, first, second)
            told = "[monitor] emails: ready for {} s, and no live worker knows it: start one that does"
            assert warnings(caplog) == [told.format(90)]
            await first.stop()
            await look_again(clock, second)
            assert warnings(caplog) == [told.format(90), told.format(120)]


@pytest.mark.once
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("url", SHARED[:1], indirect=True)
async def test_run_ends_by_a_signal_and_finishes_what_runs(
    queue: Any, url: str, tmp_path: Path, start: Any, number: signal.Signals
) -> None:
    process = start(url, tmp_path / "handled", SECONDS="0.3")
    async with queue() as mq:
        uuid = await mq.produce("burst", 1)
        await until(lambda: is_state(mq, uuid, "running"))
        process.send_signal(number)
        assert process.communicate(timeout=SOON)[0] == "stopped stopped\n"
        assert (process.returncode, await state(mq, uuid)) == (0, "succeeded")


@pytest.mark.once
def test_the_example() -> None:
    example = Path(__file__).parents[2] / "examples" / "delayed_messages.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=SOON, check=True)
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("order")] == ["order 3", "order 2", "order 1"]
    assert lines[-1] == "dead letter: ann after 2 attempts"
