"""The shared scheduler: its log lines."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import pytest

from onthedot import (
    IntervalSchedule,
    Task,
    get_scheduler,
    start_scheduler,
    stop_scheduler,
)
from onthedot.clock.manual import ManualClock
from tests.acceptance.shared import PAST, Failing, Ticking, add, asleep, driven, register
from tests.support.consumers import Work, idle
from tests.support.waits import until

pytestmark = pytest.mark.usefixtures("own_globals", "no_hidden_trouble")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str, str]]]:
    caplog.set_level(logging.INFO)
    return lambda: [(record.levelname, record.name, record.getMessage()) for record in caplog.records]


async def test_log_lines_from_start_to_stop(
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
    number = r"[0-9.]+"
    moment = r"[0-9T:.+-]+"
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
    logged = lines()
    assert len(logged) == len(expected), logged
    place = [
        [
            n
            for n, line in enumerate(logged)
            if line[:2] == (level, f"onthedot.{logger}") and re.fullmatch(words, line[2])
        ]
        for level, logger, words in expected
    ]
    assert [len(places) for places in place] == [1] * len(expected), "each of them once"
    order = [places[0] for places in place]
    assert (order[0], order[1], order[-1]) == (0, 1, len(logged) - 1)
    assert order[5] < order[6] < order[7] < order[8] < order[9], "lines of one thread are in order"
    for record in caplog.records:
        if record.name == "onthedot.task":
            fields = [getattr(record, name) for name in ("uuid", "source", "attempt", "worker")]
            assert fields[0] in record.getMessage()
            assert fields[1] in record.getMessage()
            assert fields[2] == (2 if record.levelname == "ERROR" else 1)
            assert isinstance(fields[3], str)
    (failure,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert failure.exc_info is not None
    assert isinstance(failure.exc_info[1], ValueError)
    assert failure.exc_info[2] is not None, "with the traceback"


async def test_second_add_of_a_uuid_logs_no_second_line(
    store: str, lines: Callable[[], list[tuple[str, str, str]]]
) -> None:
    task = Task("work", {"n": 1}, PAST)
    for _ in range(2):
        get_scheduler().add_task(task)
        await get_scheduler().add(task)
    assert lines() == [("INFO", "onthedot.task", f"[queued] task {task.uuid} from work")]


async def test_skipped_windows_are_logged(store: str, lines: Callable[[], list[tuple[str, str, str]]]) -> None:
    class Patient(Work):
        schedule = IntervalSchedule(10)

    clock = ManualClock()
    tick = Patient("tick", gated=True)
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
    assert sum("[queued]" in line[2] for line in lines()) == 1, "a skipped window adds no task"


async def test_unknown_source_is_logged_in_a_private_store_only(store: str, caplog: pytest.LogCaptureFixture) -> None:
    """A memory store is private: no other worker will know the source. In a file the task stays for others."""
    work = Work()
    register(work)
    handle = add("nobody", 1)
    await start_scheduler()
    good = add("work", 2)
    await until(good.done)
    await idle(get_scheduler())
    logged = [(record.levelname, record.getMessage().partition(" {")[0]) for record in caplog.records]
    if store == "memory":
        await until(handle.done)
        assert (handle.state(), logged) == ("failed", [("ERROR", "[drop] Unknown task source: nobody")])
    else:
        assert (handle.state(), logged) == ("ready", [])
    await stop_scheduler()
