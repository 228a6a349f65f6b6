"""The asyncio scheduler: order and time, also with a busy event loop and steps of the wall clock."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from onthedot import Task
from onthedot.clock.manual import ManualClock
from tests.support.consumers import Work, idle, running, scheduler_of
from tests.support.waits import until

pytestmark = pytest.mark.usefixtures("no_thread_left", "no_hidden_trouble")

KATHMANDU = timezone(timedelta(hours=5, minutes=45))


async def test_thousand_tasks_of_one_time_keep_their_order() -> None:
    values = [{"a": 1}, [1, 2], "text", 7, None, (1,), {3}, 2.5, b"raw", {"deep": [{}]}]
    at = datetime.now(UTC)
    work = Work()
    with pytest.raises(TypeError):
        sorted(values, key=lambda value: value)
    scheduler = scheduler_of(work)
    tasks = [Task("work", {"n": n, "value": values[n % len(values)]}, at) for n in range(1000)]
    for task in tasks:
        scheduler.add_task(task)
    await scheduler.start()
    await until(lambda: len(work.ended) == 1000)
    await scheduler.stop()
    assert work.started == tasks


async def test_microseconds_and_zone_are_kept_and_no_task_runs_early() -> None:
    clock = ManualClock()
    work = Work()
    at = (clock.moment() + timedelta(seconds=1)).astimezone(KATHMANDU).replace(microsecond=123_456)
    task = Task("work", {"n": 1}, at)
    async with running(work, clock=clock) as scheduler:
        scheduler.add_task(task)
        await idle(scheduler)
        due = at.timestamp() * 1000
        clock.advance(int(due - clock.now()))  # 123 of the 123.456 ms
        await idle(scheduler)
        assert work.started == []
        clock.advance(1)
        await until(lambda: work.ended == [task])
    (got,) = work.started
    assert got == task
    assert got is not task
    assert got.schedule_at.isoformat() == at.isoformat()
    assert got.schedule_at.utcoffset() == timedelta(hours=5, minutes=45)


class Stalls:
    """Times in which the machine did not run this thread: the oversleep of a control coroutine less its computing time.

    A loop that the scheduler blocks is not excused. Pauses of the garbage collector are, and are counted separately.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._thread = threading.get_ident()
        self._collecting = (0.0, 0.0)
        self.stolen: list[tuple[float, float, float]] = []  # from, to, milliseconds
        self.collector = 0.0  # its longest pause

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """For gc.callbacks. Its pauses on other threads are part of the oversleep already."""
        if phase == "start":
            self._collecting = (self._now(), time.thread_time())
            return
        began, worked = self._collecting
        pause = (time.thread_time() - worked) * 1000
        self.collector = max(self.collector, pause)
        if threading.get_ident() == self._thread:
            self.stolen.append((began, self._now(), pause))

    async def watch(self) -> None:
        while True:
            began = self._now()
            worked = time.thread_time()
            await asyncio.sleep(0.001)
            ended = self._now()
            stolen = ended - began - 1 - (time.thread_time() - worked) * 1000
            if stolen > 0:
                self.stolen.append((began, ended, stolen))

    def between(self, start: float, end: float) -> float:
        return sum(
            min(stolen, min(ended, end) - max(began, start))
            for began, ended, stolen in self.stolen
            if began < end and ended > start
        )


@pytest.mark.timed
async def test_no_wakeup_is_lost_while_the_loop_goes_to_sleep(record_property: Callable[[str, object], None]) -> None:
    """No task is later than 50 ms. A third is added on the loop, the others by a thread, due now or a moment later.

    Tasks are added when the last ones have started, so that the next add cannot hide a lost wake-up and stalls of the
    machine do not accumulate. The last third is added while nothing else runs on the loop, not even the control. Stalls
    cannot be excused there, so the test only looks for the cost of a lost wake-up (the poll interval, 10 s).
    """
    late_by = 50.0
    rng = random.Random(7)
    added: dict[str, float] = {}
    starts: dict[str, float] = {}
    work = Work(count=10_000)
    scheduler = scheduler_of(work)
    clock = scheduler.runtime.clock

    async def note(task: Task) -> None:
        assert task.uuid not in starts
        starts[task.uuid] = clock.now()

    work.do = note

    def add_some() -> None:
        for _ in range(rng.randint(1, 20)):
            after = timedelta(milliseconds=rng.choice((0, 0, 1, rng.uniform(0, 5))))
            task = Task("work", {}, datetime.now(UTC) + after)
            scheduler.add_task(task)
            added[task.uuid] = clock.now()  # stored when add_task returns

    def from_thread(total: int) -> None:
        while len(added) < total:
            add_some()
            deadline = time.monotonic() + 5
            while len(starts) < len(added):
                assert time.monotonic() < deadline, "a wake-up was lost"
                time.sleep(0.0003)
            time.sleep(rng.uniform(0, 0.0005))

    gc.collect()
    gc.freeze()  # objects of other tests are not scanned meanwhile
    stalls = Stalls(clock.now)
    gc.callbacks.append(stalls.collected)
    control = asyncio.create_task(stalls.watch())
    await scheduler.start()
    while len(added) < 3333:
        add_some()
        await until(lambda: len(starts) == len(added))
        for _ in range(rng.randint(0, 10)):
            await asyncio.sleep(0)
    await asyncio.to_thread(from_thread, 6666)
    control.cancel()
    measured = set(added)
    await asyncio.to_thread(from_thread, 10_000)
    await until(lambda: len(starts) == len(added))
    await scheduler.stop()
    gc.callbacks.remove(stalls.collected)
    gc.unfreeze()

    assert len(starts) >= 10_000
    due = {task.uuid: task.schedule_at.timestamp() * 1000 for task in work.started}
    early = [starts[uuid] - due[uuid] for uuid in starts if starts[uuid] < due[uuid] - 0.01]
    assert early == []
    raw = {uuid: starts[uuid] - max(due[uuid], added[uuid]) for uuid in starts}
    late = {uuid: raw[uuid] for uuid in measured if raw[uuid] > late_by}
    net = [ms - stalls.between(starts[uuid] - ms, starts[uuid]) for uuid, ms in late.items()]
    silent = max(ms for uuid, ms in raw.items() if uuid not in measured)
    summary = (
        f"{len(late)} of {len(measured)} later than {late_by} ms, without the machine's own stalls "
        f"{sum(ms > late_by for ms in net)}; the last third: latest {silent:.1f} ms; "
        f"the garbage collector's longest pause: {stalls.collector:.1f} ms"
    )
    record_property("lateness", summary)
    print(summary)
    assert max(net, default=0) <= late_by, summary
    assert silent < 1000, summary


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the wall clock for this process: `time` and every `datetime` of onthedot."""
    shift = 0.0
    real_time = time.time
    real_ns = time.time_ns

    class OfDatetime(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, datetime)

    class Shifted(datetime, metaclass=OfDatetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(seconds=shift)

    def jump(seconds: float) -> None:
        nonlocal shift
        shift = seconds
        monkeypatch.setattr(time, "time", lambda: real_time() + shift)
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(shift * 1e9))
        for name, module in list(sys.modules.items()):
            if name.startswith("onthedot") and getattr(module, "datetime", None) is datetime:
                monkeypatch.setattr(module, "datetime", Shifted)

    return jump


@pytest.mark.parametrize("hours", [1, -1])
async def test_step_of_the_wall_clock_moves_no_due_time(hours: int, wall_clock: Callable[[float], None]) -> None:
    work = Work(count=2)
    async with running(work) as scheduler:
        begin = time.monotonic()
        now = datetime.now(UTC)
        scheduler.add_task(Task("work", {"n": 1}, now + timedelta(seconds=1)))
        far = scheduler.add_task(Task("work", {"n": 2}, now + timedelta(minutes=30)))
        await idle(scheduler)
        wall_clock(hours * 3600)
        scheduler.add_task(work.produce({"n": 0}))  # makes the loop read the clock again
        await until(lambda: sorted(work.ran()) == [0, 1])  # on a busy machine the first is due before the step
        assert time.monotonic() - begin >= 1
        assert far.state() == "scheduled"


@pytest.mark.timed
@pytest.mark.parametrize("hours", [1, -1])
async def test_task_added_after_a_step_of_the_wall_clock_runs_at_its_time(
    hours: int, wall_clock: Callable[[float], None]
) -> None:
    work = Work()
    async with running(work) as scheduler:
        wall_clock(hours * 3600)
        begin = time.monotonic()
        at = datetime.now(UTC) + timedelta(hours=hours, seconds=0.2)
        scheduler.add_task(Task("work", {"n": 2}, at))  # by the new time
        scheduler.add_task(work.produce({"n": 1}))
        await until(lambda: work.ran() == [1], timeout=2)
        await until(lambda: work.ran() == [1, 2], timeout=2)
        assert time.monotonic() - begin >= 0.199
        assert work.started[1].schedule_at == at
