"""Seed 001, as its author would check it: the scheduler that a whole process shares, on both stores."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onthedot import (
    BaseTaskConsumer,
    IntervalSchedule,
    Scheduler,
    SchedulerStateError,
    Task,
    TaskConsumerRegistry,
    TaskHandle,
    get_scheduler,
    get_scheduler_status,
    start_scheduler,
    stop_scheduler,
)
from onthedot.clock import ManualClock
from tests.consumers import Work, idle
from tests.waiting import LONG, every_chance, until

pytestmark = [pytest.mark.timeout(30), pytest.mark.usefixtures("no_hidden_trouble")]
EXAMPLES = Path(__file__).parents[2] / "examples"
PAST = datetime(2026, 1, 1, tzinfo=UTC)  # due, whatever the clock says
FIELDS = {
    "status": str, "poll_interval": int, "queue_count": int, "scheduled_count": int, "enabled_scheduled_count": int,
    "running_count": int, "is_executing": bool, "current_task_id": (str, type(None)), "updated_at": str,
}  # fmt: skip
EMPTY = {
    "status": "stopped", "poll_interval": 10, "queue_count": 0, "scheduled_count": 0, "enabled_scheduled_count": 0,
    "running_count": 0, "is_executing": False, "current_task_id": None,
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_globals(no_thread_left: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test has a global registry and a shared scheduler of its own, and leaves no thread behind."""
    monkeypatch.delenv("ONTHEDOT_STORE", raising=False)
    monkeypatch.setattr(TaskConsumerRegistry, "sources", {})
    monkeypatch.setattr(TaskConsumerRegistry, "_watchers", [])
    monkeypatch.setattr("onthedot.scheduler._shared", None)
    yield
    get_scheduler()._core.bridge.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "row_b.db"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, file: Path) -> str:
    """Where the shared scheduler keeps its tasks."""
    if request.param == "sqlite":
        monkeypatch.setenv("ONTHEDOT_STORE", f"sqlite:///{file}")
    return str(request.param)


def register(*consumers: BaseTaskConsumer) -> None:
    for consumer in consumers:
        TaskConsumerRegistry.register(consumer)


def add(source: str, n: object = None, at: datetime = PAST) -> TaskHandle[Any]:
    return get_scheduler().add_task(Task(source, {"n": n}, at))


def shared_status() -> dict[str, Any]:
    """The eight that a test can know; all nine are checked for what they are."""
    status = get_scheduler_status()
    assert list(status) == list(FIELDS)
    assert [name for name, kind in FIELDS.items() if not isinstance(status[name], kind)] == []
    assert json.loads(json.dumps(status)) == status
    updated = datetime.fromisoformat(status.pop("updated_at"))
    assert updated.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - updated) < timedelta(seconds=10)
    return status


@contextmanager
def driven(clock: ManualClock) -> Iterator[None]:
    with get_scheduler()._core.override(None, clock):
        yield


async def asleep(clock: ManualClock, seconds: float) -> None:
    """Until the scheduler sleeps, and will wake in so many seconds: a clock that is turned before has no effect."""
    await until(lambda: clock.next_timer() == clock.now() + seconds * 1000)


# -- the singleton


def test_before_the_first_start(store: str, file: Path) -> None:
    assert shared_status() == EMPTY
    assert not file.exists(), "who only looks opens nothing"


def test_one_object_with_the_settings_of_the_seed(store: str, file: Path) -> None:
    scheduler = get_scheduler()
    assert scheduler is get_scheduler()
    core = scheduler._core
    assert (core.url, core.name) == (f"sqlite:///{file}" if store == "sqlite" else "memory://", "onthedot")
    assert (core.totals["async"], core.one_pool, core.poll_interval, core.stop_timeout) == (1, True, 10, 5)
    assert scheduler.registry is TaskConsumerRegistry


async def test_ten_starts_at_once(store: str, caplog: pytest.LogCaptureFixture) -> None:
    answers = await asyncio.gather(*(start_scheduler() for _ in range(10)))
    assert Counter(answers) == {True: 1, False: 9}
    assert shared_status()["status"] == "running"
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 9
    assert Counter(await asyncio.gather(*(stop_scheduler() for _ in range(10)))) == {True: 1, False: 9}
    assert await stop_scheduler() is False
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads change places at every chance."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Interrupted:
    """A lock after which a thread loses its turn: as a busy machine would have it, at the worst moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()
        time.sleep(0.005)


def test_ten_threads_start_at_once() -> None:
    """Each on a loop of its own: one starts it, the others are told that it runs elsewhere."""
    get_scheduler()._core.service._lock = Interrupted()
    for _ in range(3):
        answers: list[bool | str] = []
        barrier = threading.Barrier(10)

        async def one(answers: list[bool | str] = answers, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(LONG)
            try:
                answers.append(won := await start_scheduler())
            except SchedulerStateError:
                answers.append("refused")
                return
            await until(lambda: len(answers) == 10)
            assert won is await stop_scheduler()

        threads = [threading.Thread(target=lambda: asyncio.run(one())) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter(answers) == {True: 1, "refused": 9}
        assert shared_status()["status"] == "stopped"


# -- states


async def test_four_states_in_order_and_nothing_else(store: str) -> None:
    """Seen by a thread that reads without pause. Starting and stopping last until it has seen them."""
    work, go = Work(gated=True), asyncio.Event()
    register(work)
    seen, ending = ["stopped"], threading.Event()

    def read() -> None:
        while not ending.is_set():
            seen.append(get_scheduler_status()["status"])

    real = get_scheduler()._core.store
    beat = real.beat

    async def held(*args: Any) -> Any:
        await go.wait()
        return await beat(*args)

    real.beat = held
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(2):
            go.clear()
            work.gate.clear()
            work.started.clear()
            starting = asyncio.ensure_future(start_scheduler())
            await until(lambda: seen[-1] == "starting")
            go.set()
            assert await starting is True
            assert get_scheduler_status()["status"] == "running"
            add("work")
            await until(lambda: work.started and seen[-1] == "running")
            stopping = asyncio.ensure_future(stop_scheduler())
            await until(lambda: seen[-1] == "stopping")
            work.gate.set()
            assert await stopping is True
            assert get_scheduler_status()["status"] == "stopped"
            await until(lambda: seen[-1] == "stopped")
    finally:
        ending.set()
        reader.join()
    life = ["starting", "running", "stopping", "stopped"]
    assert [status for status, _ in groupby(seen)] == ["stopped", *life, *life]


@pytest.mark.usefixtures("hasty")
async def test_a_hundred_lives_never_go_backwards() -> None:
    """Too fast for each state to be seen; but what is seen comes in their order."""
    order = ["stopped", "starting", "running", "stopping"]
    seen, ending = [("stopped", 0)], threading.Event()
    life = 0

    def read() -> None:
        while not ending.is_set():
            before = life
            status = get_scheduler_status()["status"]
            if before == life:  # else it cannot be said of which life it is
                seen.append((status, before))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(100):
            await start_scheduler()
            await stop_scheduler()
            life += 1
    finally:
        ending.set()
        reader.join()
    assert {status for status, _ in seen} <= set(order)
    for (before, of), (after, now) in pairwise(seen):
        if of == now and after != "stopped":
            assert order.index(before) <= order.index(after), (before, after)


@pytest.mark.parametrize("verb", ["open", "put", "beat"])
async def test_a_start_that_fails_leaves_stopped(store: str, verb: str) -> None:
    real = get_scheduler()._core.store
    works = getattr(real, verb)

    async def fails(*args: Any) -> None:
        raise OSError("no route")

    setattr(real, verb, fails)
    with pytest.raises(OSError, match="no route"):
        await start_scheduler()
    assert shared_status() == EMPTY
    setattr(real, verb, works)
    assert await start_scheduler() is True
    assert await stop_scheduler() is True


# -- status


class Planned(Work):
    schedule = IntervalSchedule(3600)


async def pause(name: str) -> None:
    store = get_scheduler()._core.store
    (record,) = [each for each in (await store.state())[0] if each.name == name]
    assert list(await store.put([replace(record, paused=True)], [])) == [True]


async def test_nine_fields(store: str) -> None:
    """3 schedules, 1 of them paused; 1 task runs, 7 more are due, 2 are delayed."""
    work = Work(gated=True, count=5)
    register(work, *(Planned(f"plan-{n}") for n in range(3)))
    await start_scheduler()
    assert shared_status() == EMPTY | {"status": "running", "scheduled_count": 3, "enabled_scheduled_count": 3}
    await pause("plan-1")
    running = add("work", 0)
    await until(lambda: work.started)
    for n in range(1, 8):
        add("work", n)
    for n in (8, 9):
        add("work", n, datetime.now(UTC) + timedelta(hours=1))
    full = {
        "status": "running", "poll_interval": 10, "queue_count": 7, "scheduled_count": 3, "enabled_scheduled_count": 2,
        "running_count": 1, "is_executing": True, "current_task_id": running.uuid,
    }  # fmt: skip
    await until(lambda: shared_status() == full)
    assert get_scheduler().status()["delayed_count"] == 2
    await every_chance()
    assert shared_status() == full
    assert await asyncio.to_thread(shared_status) == full

    work.gate.set()
    await until(lambda: len(work.ended) == 8)
    done = {"status": "running", "scheduled_count": 3, "enabled_scheduled_count": 2}
    await until(lambda: shared_status() == EMPTY | done)
    await stop_scheduler()
    assert shared_status() == EMPTY | done | {"status": "stopped"}


async def test_what_this_process_adds_is_counted_when_it_is_added(store: str) -> None:
    """Before a start, while one runs, and after the stop; whatever looks at the store are under way meanwhile."""
    work = Work(gated=True)
    register(work)
    add("work", 0)
    assert shared_status() == EMPTY | {"queue_count": 1}
    await start_scheduler()
    await until(lambda: work.started)
    await until(lambda: shared_status()["queue_count"] == 0)
    end, n = time.monotonic() + 0.5, 0
    while time.monotonic() < end:
        n += 1
        if n % 3:
            add("work", n)
        else:
            await get_scheduler().add(Task("work", {"n": n}, datetime.now(UTC) + timedelta(hours=1)))
        status = get_scheduler().status()
        assert (status["queue_count"], status["delayed_count"], status["running_count"]) == (n - n // 3, n // 3, 1)
        if n % 10 == 0:
            await asyncio.sleep(0.02)  # so that the others come to work
    work.gate.set()
    await until(lambda: len(work.ended) == n - n // 3 + 1)
    await until(lambda: get_scheduler().status()["queue_count"] == 0)
    await stop_scheduler()
    add("work", n + 1)
    status = get_scheduler().status()
    assert (status["queue_count"], status["delayed_count"]) == (1, n // 3)


def test_a_task_for_now_is_due_at_once(store: str) -> None:
    """Not from the next whole millisecond on: nobody is there to wake it then."""
    for n in range(1, 101):
        get_scheduler().add_task(Task("work"))
        assert shared_status()["queue_count"] == n


def test_what_many_threads_add_is_counted(store: str) -> None:
    """When the last one is back the sum is right, although none of them has waited for the others."""
    wrong: list[tuple[int, int]] = []

    def adds() -> None:
        for n in range(25):
            add("work", n)
            if (count := shared_status()["queue_count"]) <= n:
                wrong.append((n, count))

    threads = [threading.Thread(target=adds) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [], "one's own additions at least"
    assert shared_status()["queue_count"] == 200


async def test_what_others_do_is_seen_too(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Another process adds, and takes away: here, another scheduler on the same file."""
    monkeypatch.setenv("ONTHEDOT_STORE", f"sqlite:///{file}")
    register(Work(gated=True))
    await start_scheduler()
    other = Scheduler(store=f"sqlite:///{file}", registry=TaskConsumerRegistry())
    handles = [other.add_task(Task("elsewhere", {"n": n}, PAST)) for n in range(3)]
    await until(lambda: shared_status()["queue_count"] == 3)
    assert handles[0].cancel() is True
    await until(lambda: shared_status()["queue_count"] == 2)
    await stop_scheduler()
    other._core.bridge.close()


async def test_status_waits_for_nobody(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """A page that takes for ever keeps the reader, and somebody else the file: the loop itself gets its answer."""
    monkeypatch.setenv("ONTHEDOT_STORE", f"sqlite:///{file}")
    work = Work(gated=True)
    register(work)
    await start_scheduler()
    running = add("work")
    await until(lambda: work.started)
    entered, gate, ended = threading.Event(), threading.Event(), list[bool]()

    def slow_page(*_: object) -> None:
        entered.set()
        ended.append(gate.wait(LONG))

    page = asyncio.ensure_future(get_scheduler()._core.store._read(slow_page))
    await until(entered.is_set)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        answers = [shared_status() for _ in range(1000)]
        answers += await asyncio.to_thread(lambda: [shared_status() for _ in range(1000)])
        assert ended == [], "nobody has waited for the reader"
        other.execute("COMMIT")
        assert {(each["status"], each["current_task_id"]) for each in answers} == {("running", running.uuid)}
        add("work", 1)
        assert shared_status()["queue_count"] == answers[-1]["queue_count"] + 1, "what is added here is known"
    finally:
        other.close()
        gate.set()
    await page
    await until(lambda: shared_status()["queue_count"] == 1)
    work.gate.set()
    await stop_scheduler()


# -- one task at a time


async def test_first_in_first_out_across_sources(store: str) -> None:
    order: list[str] = []

    async def note(task: Task) -> None:
        order.append(task.args["n"])

    class InThread(BaseTaskConsumer):
        name, concurrent_count = "b", 5

        def consume(self, task: Task) -> None:
            order.append(task.args["n"])

    a = Work("a", count=5, do=note)
    register(a, InThread())
    for n in ("a1", "b1", "a2", "b2"):
        add(n[0], n)
    await start_scheduler()
    await until(lambda: len(order) == 4)
    for n in ("b3", "a3", "a4", "b4"):  # while running
        add(n[0], n)
    await until(lambda: len(order) == 8)
    await stop_scheduler()
    assert order == ["a1", "b1", "a2", "b2", "b3", "a3", "a4", "b4"]


async def test_only_one_runs_whatever_the_sources_allow(store: str) -> None:
    many = [Work(name, count=5, gated=True) for name in ("a", "b")]
    register(*many)
    for n in range(4):
        add("ab"[n % 2], n)
    await start_scheduler()
    await until(lambda: many[0].started)
    await every_chance()
    assert [work.ran() for work in many] == [[0], []]
    await until(lambda: shared_status()["queue_count"] == 3)
    for work in many:
        work.gate.set()
    await until(lambda: sum(len(work.ended) for work in many) == 4)
    await stop_scheduler()


class Ticking(Work):
    schedule = IntervalSchedule(10, overlap="allow")


async def test_due_checks_go_on_during_a_task_of_thirty_seconds(store: str) -> None:
    clock, order = ManualClock(), []

    async def note(task: Task) -> None:
        order.append((task.source, (task.schedule_at - begin).total_seconds()))

    slow, tick = Work("slow", gated=True, do=note), Ticking("tick", do=note)
    register(slow, tick)
    with driven(clock):
        begin = clock.moment()
        await start_scheduler()
        add("slow", 1, begin)
        add("slow", 2, begin + timedelta(seconds=15))
        await until(lambda: slow.started)
        for waiting, wakes in ((1, 10), (3, 5), (4, 10)):  # after 10, 20 and 30 seconds
            await asleep(clock, wakes)
            clock.advance(10_000)
            await until(lambda waiting=waiting: shared_status()["queue_count"] == waiting)
            assert shared_status()["is_executing"] is True
        assert (slow.ran(), tick.started) == ([1], [])
        slow.gate.set()
        await until(lambda: len(order) == 5)
        await stop_scheduler()
    assert order == [("slow", 0), ("tick", 10), ("slow", 15), ("tick", 20), ("tick", 30)], "in the order of their times"


async def test_a_schedule_makes_a_task_and_moves_on(store: str) -> None:
    """Task, queue, and what the schedule knows of its last and its next run: in one step."""
    clock = ManualClock()
    tick = Ticking("tick")
    register(tick)
    with driven(clock):
        await start_scheduler()
        for runs in (1, 2):
            await asleep(clock, 10)
            clock.advance(10_000)
            await until(lambda runs=runs: len(tick.ended) == runs)
            ((record,), _, _) = await get_scheduler()._core.store.state()
            nominal = int(clock.now())
            assert (record.runs, record.last_at, record.next_at) == (runs, nominal, nominal + 10_000)
        await stop_scheduler()


# -- stop


class Control:
    """How late the machine is by itself: what a plain sleep oversleeps is not the scheduler's doing."""

    async def late(self, seconds: float) -> float:
        begin = time.monotonic()
        await asyncio.sleep(seconds)
        return time.monotonic() - begin - seconds


async def test_a_task_of_sixty_seconds_is_cut_off_after_five(
    monkeypatch: pytest.MonkeyPatch, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On both stores, and in a thread, which cannot be cut off: side by side, since they have the same five seconds."""
    gate = threading.Event()

    class Sleeps(BaseTaskConsumer):
        name, max_retries = "work", 3

        async def consume(self, task: Task) -> None:
            await asyncio.sleep(60)

    class Blocks(BaseTaskConsumer):
        name, max_retries = "work", 3

        def consume(self, task: Task) -> None:
            gate.wait(60)

    schedulers: list[Scheduler] = []
    for url, consumer in (("memory://", Sleeps()), (f"sqlite:///{file}", Sleeps()), ("memory://", Blocks())):
        monkeypatch.setenv("ONTHEDOT_STORE", url)
        monkeypatch.setattr("onthedot.scheduler._shared", None)
        monkeypatch.setattr(TaskConsumerRegistry, "sources", {"work": consumer})
        schedulers.append(get_scheduler())
    handles = [scheduler.add_task(Task("work", None, PAST)) for scheduler in schedulers]
    for scheduler in schedulers:
        await scheduler.start()
    await until(lambda: all(scheduler.status()["running_count"] == 1 for scheduler in schedulers))

    async def stop(scheduler: Scheduler) -> float:
        begin = time.monotonic()
        assert await scheduler.stop() is True
        return time.monotonic() - begin

    *took, late = await asyncio.gather(*map(stop, schedulers), Control().late(5))
    assert min(took) >= 5.0, took
    assert max(took) <= 5.5 + late, took
    gate.set()
    for scheduler, handle in zip(schedulers, handles, strict=True):
        assert (handle.state(), handle.info().attempt) == ("ready", 1)
        (record,) = await asyncio.to_thread(record_of, scheduler, handle.uuid)
        assert (record.past.retries, record.past.crashes, record.past.earlier) == (0, 0, 0)
        status = scheduler.status()
        assert (status["status"], status["queue_count"], status["running_count"]) == ("stopped", 1, 0)
        scheduler._core.bridge.close()
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []


def record_of(scheduler: Scheduler, uuid: str) -> Any:
    return scheduler._core.bridge.call(lambda link: link.store.get((uuid,)))


async def test_what_ends_within_five_seconds_is_waited_for(store: str) -> None:
    work = Work(gated=True)
    register(work)
    handle = add("work", 1)
    add("work", 2)
    await start_scheduler()
    await until(lambda: work.started)
    stopping = asyncio.ensure_future(stop_scheduler())
    await until(lambda: shared_status()["status"] == "stopping")
    await every_chance()
    assert (stopping.done(), shared_status()["running_count"]) == (False, 1)
    work.gate.set()
    assert await stopping is True
    assert (handle.state(), work.done(), work.cancelled) == ("succeeded", [1], 0)
    assert shared_status() == EMPTY | {"queue_count": 1}


async def test_idle_stops_at_once(store: str) -> None:
    took = []
    for _ in range(3):  # the machine may stall once
        await start_scheduler()
        await idle(get_scheduler())
        begin = time.monotonic()
        assert await stop_scheduler() is True
        took.append(time.monotonic() - begin)
    assert min(took) < 0.2


async def test_stopped_and_started_again(store: str) -> None:
    work = Work()
    register(work)
    for n in range(3):
        handle = add("work", n)
        assert await start_scheduler() is True
        await until(handle.done)
        assert await stop_scheduler() is True
    assert work.done() == [0, 1, 2]


# -- failures


class Failing(BaseTaskConsumer):
    name, max_retries, backoff = "bad", 1, [1]

    async def consume(self, task: Task) -> None:
        if task.args["n"] != "good":
            raise ValueError("no luck")


async def test_failures_are_kept_and_found(store: str) -> None:
    work = Work()
    register(type("Once", (Failing,), {"max_retries": 0})(), work)
    bad, good = add("bad", 1), add("work", 2)
    await start_scheduler()
    await until(lambda: bad.done() and good.done())
    assert (bad.state(), good.state()) == ("failed", "succeeded"), "the others do not notice"
    await until(lambda: shared_status() == EMPTY | {"status": "running"})
    await stop_scheduler()

    (failed,) = await get_scheduler().find(state="failed")
    assert (failed.uuid, failed.source, failed.attempt) == (bad.uuid, "bad", 1)
    assert failed.error is not None
    assert (failed.error.type, failed.error.message) == ("ValueError", "no luck")
    assert "raise ValueError" in failed.error.traceback

    TaskConsumerRegistry.unregister("bad")
    mended = Work("bad")
    register(mended)
    assert await get_scheduler().retry(failed.uuid) == [bad.uuid]
    await start_scheduler()
    await until(lambda: bad.state() == "succeeded")
    await stop_scheduler()
    assert len(await get_scheduler().find(state="failed")) == 0
    assert mended.done() == [1]


# -- log lines


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str, str]]]:
    caplog.set_level(logging.INFO)
    return lambda: [(record.levelname, record.name, record.getMessage()) for record in caplog.records]


async def test_the_lines_of_a_life(
    store: str, lines: Callable[[], list[tuple[str, str, str]]], caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    register(Work(), Failing(), tick := Ticking("tick"))
    with driven(clock):
        await start_scheduler()
        good = add("work", 1, clock.moment())
        await until(good.done)
        bad = add("bad", 1, clock.moment())
        await asleep(clock, 1)
        clock.advance(1000)
        await until(bad.done)
        await asleep(clock, 9)
        clock.advance(9000)
        await until(lambda: tick.ended)
        await idle(get_scheduler())
        await stop_scheduler()
    fired = tick.ended[0].uuid
    number, moment = r"[0-9.]+", r"[0-9T:.+-]+"
    expected = [
        ("INFO", "scheduler", r"Schedule registered: tick next 2026-01-01T00:00:10\+00:00"),
        ("INFO", "scheduler", "Scheduler started"),
        ("INFO", "task", f"\\[queued\\] task {good.uuid} from work"),
        ("INFO", "task", f"\\[done\\] task {good.uuid} from work in {number} ms"),
        ("INFO", "task", f"\\[queued\\] task {bad.uuid} from bad"),
        ("WARNING", "task", f"\\[retry\\] task {bad.uuid} from bad again at {moment} \\(1/1\\): ValueError: no luck"),
        ("ERROR", "task", f"\\[fail\\] task {bad.uuid} from bad: no luck"),
        ("INFO", "scheduler", r"\[due\] schedule tick at 2026-01-01T00:00:10\+00:00"),
        ("INFO", "task", f"\\[queued\\] task {fired} from tick"),
        ("INFO", "task", f"\\[done\\] task {fired} from tick in {number} ms"),
        ("INFO", "scheduler", "Scheduler stopped"),
    ]
    said = lines()
    assert len(said) == len(expected), said
    place = [
        [n for n, line in enumerate(said) if line[:2] == (level, f"onthedot.{logger}") and re.fullmatch(words, line[2])]
        for level, logger, words in expected
    ]
    assert [len(places) for places in place] == [1] * len(expected), "each of them once"
    order = [places[0] for places in place]
    assert (order[0], order[1], order[-1]) == (0, 1, len(said) - 1)
    assert order[5] < order[6] < order[7] < order[8] < order[9], "what one thread says comes in its order"
    for record in caplog.records:
        if record.name == "onthedot.task":
            told = [getattr(record, name) for name in ("uuid", "source", "attempt", "worker")]
            assert told[0] in record.getMessage()
            assert told[1] in record.getMessage()
            assert told[2] == (2 if record.levelname == "ERROR" else 1)
            assert isinstance(told[3], str)
    (failure,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert failure.exc_info is not None
    assert isinstance(failure.exc_info[1], ValueError)
    assert failure.exc_info[2] is not None, "with the traceback"


async def test_a_second_addition_is_not_queued_again(
    store: str, lines: Callable[[], list[tuple[str, str, str]]]
) -> None:
    task = Task("work", {"n": 1}, PAST)
    for _ in range(2):
        get_scheduler().add_task(task)
        await get_scheduler().add(task)
    assert lines() == [("INFO", "onthedot.task", f"[queued] task {task.uuid} from work")]


async def test_windows_that_are_skipped_are_told(store: str, lines: Callable[[], list[tuple[str, str, str]]]) -> None:
    class Patient(Work):
        schedule = IntervalSchedule(10)

    clock, tick = ManualClock(), Patient("tick", gated=True)
    register(tick)
    with driven(clock):
        await start_scheduler()
        await asleep(clock, 10)
        clock.advance(10_000)
        await until(lambda: tick.started)
        await asleep(clock, 10)
        clock.advance(10_000)
        await until(lambda: [line for line in lines() if line[0] == "WARNING"])
        tick.gate.set()
        await until(lambda: tick.ended)
        await stop_scheduler()
    assert [line[2] for line in lines() if line[0] != "INFO"] == ["[skipped] schedule tick: overlap"]
    assert sum("[queued]" in line[2] for line in lines()) == 1, "the one that was skipped is not queued"


async def test_an_unknown_source(store: str, caplog: pytest.LogCaptureFixture) -> None:
    """A memory store is this process's own: nobody else will come. In a file it is left for others."""
    work = Work()
    register(work)
    handle = add("nobody", 1)
    await start_scheduler()
    good = add("work", 2)
    await until(good.done)
    await idle(get_scheduler())
    told = [(record.levelname, record.getMessage().partition(" {")[0]) for record in caplog.records]
    if store == "memory":
        await until(handle.done)
        assert (handle.state(), told) == ("failed", [("ERROR", "[drop] Unknown task source: nobody")])
    else:
        assert (handle.state(), told) == ("ready", [])
    await stop_scheduler()


# -- what happens around it


@pytest.mark.usefixtures("hasty")
async def test_a_loop_that_fails_is_told_and_goes_on(store: str, caplog: pytest.LogCaptureFixture) -> None:
    work = Work()
    register(work)
    await start_scheduler()
    await idle(get_scheduler())
    real = get_scheduler()._core.store
    turn, failures = real.turn, 2

    async def fails(*args: Any) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError("no route")
        return await turn(*args)

    real.turn = fails
    handle = add("work", 1)
    await until(handle.done)
    assert shared_status()["status"] == "running"
    assert get_scheduler().status()["last_error"] == "OSError: no route"
    await stop_scheduler()
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    assert len(errors) == 1
    assert "no route" in errors[0]


@pytest.mark.once
def test_the_example(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "shared_scheduler.py"],
        capture_output=True, text=True, timeout=LONG, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.stderr == ""
    said = done.stdout.splitlines()
    assert said[0] == "stopped: 0 wait, 0 of 0 schedules are enabled"
    assert said.index("hello ann") < said.index("hello bob"), "one at a time, in their order"
    assert "INFO Scheduler started" in said
    assert "tick" in said
    assert "failed: greet, ValueError: nobody to greet" in said
    assert said[-1] == "stopped: 0 wait, 1 of 1 schedules are enabled"
    assert list(tmp_path.iterdir()) == []
