"""The message queue, its acceptance cases: exact delays, contention, retries, dead letters, monitors."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onthedot import ArgumentError
from onthedot.clock.manual import ManualClock
from onthedot.mq import MessageQueue
from tests.acceptance.queues import A_YEAR, SHARED, is_state, started, state, succeeded
from tests.faults import scaled
from tests.support.waits import LONG, SOON, every_chance, until

pytestmark = pytest.mark.usefixtures("no_thread_left", "no_hidden_trouble")


async def idle(mq: MessageQueue) -> None:
    """Waits until the worker has nothing to do and sleeps."""
    worker = mq.app.runtime.worker
    assert worker is not None
    worker.idle.clear()
    worker.wakeup.set()
    await until(worker.idle.is_set)


# -- time


async def test_messages_are_handled_in_order_to_the_millisecond(queue: Any) -> None:
    clock = ManualClock()
    mq = queue(clock)
    got = []
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


async def test_none_of_500_delayed_messages_is_early(queue: Any) -> None:
    mq = queue(max_workers=50)
    chance = random.Random(3)
    handled: dict[int, float] = {}
    produced_at: dict[int, float] = {}
    mq.register_handler("orders", lambda n: handled.__setitem__(n, time.time()))
    delays = [chance.uniform(0.05, 2) for _ in range(500)]
    async with started(mq):
        for n, delay in enumerate(delays):
            produced_at[n] = time.time() + delay
            await mq.produce("orders", n, delay=delay, message_id=f"m{n}")
        await until(lambda: len(handled) == 500)
        await mq.stop()
        found = list(await mq.app.find(limit=1000))
    early = [n for n in range(500) if handled[n] < produced_at[n] - 0.001]  # two clocks are read one after the other
    assert early == []
    assert [info.uuid for info in found if info.started_at is None or info.started_at < info.schedule_at] == []
    assert len(found) == 500


async def test_earlier_message_wakes_an_idle_queue(queue: Any) -> None:
    """The fallback interval is too long to matter."""
    mq = queue(delay_fallback_interval=300)
    got = []
    mq.register_handler("orders", got.append)
    async with started(mq):
        await mq.produce("orders", "late", delay=200)
        await idle(mq)
        await mq.produce("orders", "early", delay=0.05)
        await until(lambda: got == ["early"])


async def test_higher_priority_is_handled_first_and_in_order(queue: Any) -> None:
    mq = queue(max_workers=1)
    got = []
    mq.register_handler("orders", got.append)
    for n in range(3):
        for priority in ("low", "normal", "high"):
            await mq.produce("orders", (priority, n), priority=priority)
    async with started(mq):
        await until(lambda: len(got) == 9)
    assert got == [(priority, n) for priority in ("high", "normal", "low") for n in range(3)]


# -- ids and lifetimes


async def test_second_message_with_the_same_id_changes_nothing(queue: Any) -> None:
    mq = queue()
    got = []
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


async def test_ttl_ends_messages_that_have_not_started(queue: Any) -> None:
    clock = ManualClock()
    mq = queue(clock, message_ttl=100)
    got = []
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


async def test_ttl_does_not_affect_a_running_message(queue: Any) -> None:
    clock = ManualClock()
    gate = asyncio.Event()
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


async def test_ttl_shorter_than_the_delay_is_refused(queue: Any) -> None:
    mq = queue(message_ttl=60)
    for delay, ttl, words in ((10, 10, "ttl=10 <= delay=10"), (60, None, "message_ttl=60 <= delay=60")):
        with pytest.raises(ArgumentError, match=f"message for 'orders': it would expire first, {words}"):
            await mq.produce("orders", 1, delay=delay, ttl=ttl)
    for wrong in ({"delay": -1}, {"delay": "1"}, {"ttl": float("nan")}, {"priority": "urgent"}):
        with pytest.raises((TypeError, ValueError)):
            await mq.produce("orders", 1, **wrong)
    assert await mq.metrics() == {}


# -- failures


async def test_retries_come_at_their_times_without_polling(queue: Any) -> None:
    clock = ManualClock()
    begin = clock.now()
    mq = queue(clock, delay_fallback_interval=300, max_retries=2, retry_delays=[0.2, 0.4])
    attempts = []

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


async def test_retries_come_in_time_on_an_idle_queue(queue: Any) -> None:
    mq = queue(delay_fallback_interval=300, max_retries=2, retry_delays=[0.2, 0.4])
    moments = []

    @mq.register_handler("orders")
    async def fails(_: object) -> None:
        moments.append(time.monotonic())
        raise OSError("no answer")

    async with started(mq):
        await mq.produce("orders", 1)
        await until(lambda: len(moments) == 3)  # much sooner than the fallback
    assert moments[1] - moments[0] >= 0.2
    assert moments[2] - moments[1] >= 0.4


async def test_dead_letters_are_listed_and_retried(queue: Any) -> None:
    mq = queue(max_retries=0, retry_delays=[])
    broken = True
    got = []

    @mq.register_handler("orders")
    def handle(n: int) -> None:
        if broken:
            raise ValueError(f"order {n}")
        got.append(n)

    async with started(mq):
        ids = [await mq.produce("orders", n) for n in range(5)]
        await until(lambda: failed(mq, 5))
        letters = await mq.dead_letters()
        assert sorted(letter.args["payload"] for letter in letters) == [0, 1, 2, 3, 4]
        ends = [letter.ended_at for letter in letters]  # five threads may end in another order than they began
        assert ends == sorted(ends, reverse=True)
        assert len(await mq.dead_letters(limit=2)) == 2
        broken = False
        assert await mq.retry(ids[0]) == [ids[0]]
        await until(lambda: got == [0])
        assert await mq.retry([*ids[1:], "nobody"]) == ids[1:]
        await until(lambda: sorted(got) == [0, 1, 2, 3, 4])
        await until(lambda: failed(mq, 0))


async def failed(mq: MessageQueue, count: int) -> bool:
    return len(await mq.dead_letters()) == count


async def test_handler_that_exceeds_its_timeout_fails(queue: Any) -> None:
    clock = ManualClock()
    begun = []
    mq = queue(clock, handler_timeout=30, handler_timeouts={"quick": 2}, max_retries=1, retry_delays=[5])
    for topic in ("slow", "quick"):

        @mq.register_handler(topic)
        async def hangs(_: object, topic: str = topic) -> None:
            begun.append(topic)
            await asyncio.Event().wait()

    async with started(mq):
        slow = await mq.produce("slow", 1)
        quick = await mq.produce("quick", 1)
        await until(lambda: len(begun) == 2)
        clock.advance(1_999)
        await every_chance()
        assert await state(mq, quick) == "running"
        clock.advance(1)
        await until(lambda: is_state(mq, quick, "scheduled"))
        assert await state(mq, slow) == "running"
        await until(lambda: clock.now() + 5_000 in clock.due_times())
        clock.advance(5_000)
        await until(lambda: len(begun) == 3 and clock.now() + 2_000 in clock.due_times())
        clock.advance(2_000)
        await until(lambda: is_state(mq, quick, "failed"))
        (letter,) = await mq.dead_letters()
        assert letter.error is not None
        assert letter.error.message == "no result after 2 s"
        clock.advance(30_000)
        await until(lambda: is_state(mq, slow, "scheduled"))


# -- monitor


async def test_monitor_warns_once_of_failures(queue: Any, caplog: pytest.LogCaptureFixture) -> None:
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
        await next_check(clock, mq)
        assert warnings(caplog) == [], "1 of 101 is not more than a hundredth"
        for _ in range(2):
            await mq.produce("orders", True)
        await until(lambda: all_ended(mq, 103))
        await next_check(clock, mq)
        expected = ["[monitor] failures: 2 of 2 runs failed, most of them of orders; see `onthedot failed`"]
        assert warnings(caplog) == expected
        for _ in range(19):
            await mq.produce("orders", True)
            await next_check(clock, mq)
        assert warnings(caplog) == expected, "not again within ten minutes"
        await mq.produce("orders", True)
        await until(lambda: all_ended(mq, 123))
        await next_check(clock, mq)
        assert len(warnings(caplog)) == 2


async def all_ended(mq: MessageQueue, count: int) -> bool:
    counts = (await mq.metrics())["orders"]
    return counts.get("succeeded", 0) + counts.get("failed", 0) == count


async def next_check(clock: ManualClock, *queues: MessageQueue) -> None:
    """Advances by one interval and waits until all monitors have checked."""

    def looked() -> bool:
        return clock.due_times().count(clock.now() + 30_000) == len(queues)

    await until(looked)
    clock.advance(30_000)
    await until(looked)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for record in caplog.records if "[monitor]" in (line := record.getMessage())]


# -- several processes


@pytest.mark.once
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("url", SHARED, indirect=True)
async def test_four_processes_share_messages_of_one_millisecond(
    queue: Any, url: str, tmp_path: Path, start: Any
) -> None:
    """Each message is handled once, and each process handles at least 15 %. Handlers take a while, so slots decide."""
    count = scaled(1_000, 20_000)
    workers = scaled(5, 100)
    files = [tmp_path / f"handled-{n}" for n in range(4)]
    processes = [start(url, file, WORKERS=str(workers), SECONDS="0.05") for file in files]
    async with queue() as mq:
        store = mq.app.runtime.store
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
    return len(await store.sessions()) == count


@pytest.mark.parametrize("url", SHARED, indirect=True)
async def test_only_one_of_two_workers_warns(queue: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Messages without a handler cause a warning of one worker; when it has ended, the other one warns."""
    clock = ManualClock()
    first, second, producer = (queue(clock, delay_fallback_interval=3600, processing_timeout=A_YEAR) for _ in range(3))
    for mq in (first, second):
        mq.register_handler("orders", print)
    async with started(first):
        await until(lambda: workers_of(first.app.runtime.store, 1))
        async with started(second):
            await producer.produce("emails", 1, ttl=86_400)
            for _ in range(3):
                assert warnings(caplog) == []
                await next_check(clock, first, second)
            warning = "[monitor] emails: ready for {} s, and no live worker knows it: start one that does"
            assert warnings(caplog) == [warning.format(90)]
            await first.stop()
            await next_check(clock, second)
            assert warnings(caplog) == [warning.format(90), warning.format(120)]


@pytest.mark.once
def test_example_program_prints_what_it_promises() -> None:
    example = Path(__file__).parents[3] / "examples" / "delayed_messages.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=SOON, check=True)
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("order")] == ["order 3", "order 2", "order 1"]
    assert lines[-1] == "dead letter: ann after 2 attempts"
