"""Lines about single tasks: a hundred per second and source, then one line per second that sums up the others."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from onthedot import App
from onthedot.clock.manual import ManualClock
from onthedot.model.failures import encode_failure
from onthedot.model.traces import RunSpan
from onthedot.observability.logs import LogObserver
from onthedot.stores.contract import (
    Completed,
    Ended,
    History,
    Lease,
    NewTask,
    Outcome,
    Policy,
    Record,
    Requeued,
    Suspended,
    Wait,
)

SUMMARY = re.compile(r"\[(queued|done|cancelled)\] (\d+) more tasks? from (\S+?)(:.*)?$")


@dataclass
class FinishedRun:
    record: Record
    started: float
    span: RunSpan | None = None


def tasks(number: int, source: str = "send") -> list[NewTask]:
    return [NewTask(f"{source}-{index}", source, b"{}") for index in range(number)]


def record(uuid: str, source: str, reason: str = "due") -> Record:
    history = History(reason=reason)  # type: ignore[arg-type]
    return Record(uuid, source, b"{}", Policy(), None, None, 0, 1, 0, "running", history)


def settle(
    logs: LogObserver, durations: Sequence[float], source: str = "send", outcome: Callable[[Lease], Outcome] = Completed
) -> None:
    """One turn in which runs of these durations, in ms, have ended."""
    ended = [
        (outcome(Lease(f"{source}-{index}", 1, "w")), FinishedRun(record(f"{source}-{index}", source), -duration))
        for index, duration in enumerate(durations)
    ]
    logs.tasks_settled(ended, ["ok"] * len(ended), 0.0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def logs(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> LogObserver:
    caplog.set_level(logging.INFO)
    return LogObserver(None, clock=clock)


async def test_a_hundred_tasks_of_a_second_have_a_line_each_and_the_others_share_one(
    logs: LogObserver, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    settle(logs, [1.0] * 60)
    settle(logs, [2.0] * 60)
    clock.advance(999)
    settle(logs, [*range(1, 81)])
    assert caplog.messages.count("[done] task send-0 from send in 2.0 ms") == 1
    assert len(caplog.messages) == 100
    clock.advance(1)
    assert caplog.messages[100:] == ["[done] 100 more tasks from send: 0 failed, p50 31.0 ms, p95 76.0 ms"]
    settle(logs, [3.0])
    assert caplog.messages[101:] == ["[done] task send-0 from send in 3.0 ms"]


async def test_sources_and_kinds_of_lines_do_not_count_together(
    logs: LogObserver, caplog: pytest.LogCaptureFixture
) -> None:
    logs.session_opened("w1")
    logs.tasks_added([*tasks(100), *tasks(101, "mail")])
    settle(logs, [1.0] * 100)
    assert len(caplog.messages) == 300
    logs.flush()
    assert caplog.messages[300:] == ["[queued] 1 more task from mail"]
    summary: Any = caplog.records[300]
    assert (summary.source, summary.worker) == ("mail", "w1")


async def test_failed_tasks_keep_their_lines_and_are_counted(
    logs: LogObserver, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stored = encode_failure(ValueError("no luck"), 1)
    settle(logs, [1.0] * 150)
    settle(logs, [1.0] * 120, outcome=lambda lease: Ended(lease, "failed", error=stored))
    for index in range(120):
        lease = Lease(f"send-{index}", 1, "w")
        error = ValueError("no luck")
        logs.error_classified(record(lease.uuid, "send"), error, Ended(lease, "failed", error=stored), 0)
    assert sum(each.levelname == "ERROR" for each in caplog.records) == 120
    clock.advance(1000)
    assert caplog.messages[-1] == "[done] 50 more tasks from send: 120 failed, p50 1.0 ms, p95 1.0 ms"


async def test_cancelled_tasks_share_a_line_and_expired_ones_do_not(
    logs: LogObserver, caplog: pytest.LogCaptureFixture
) -> None:
    logs.chores_ended([record(f"a{index}", "send", "cancel") for index in range(130)])
    logs.chores_ended([record(f"b{index}", "send", "expired") for index in range(130)])
    logs.flush()
    assert sum(text.startswith("[cancelled] task") for text in caplog.messages) == 100
    assert sum(text.startswith("[expired] task") for text in caplog.messages) == 130
    assert caplog.messages[-1] == "[cancelled] 30 more tasks from send"


async def test_sleeps_and_waits_have_lines_and_share_one(logs: LogObserver, caplog: pytest.LogCaptureFixture) -> None:
    def waiting(*counters: str, timeout: int | None = None) -> Callable[[Lease], Outcome]:
        return lambda lease: Suspended(lease, Wait(tuple((counter, 1) for counter in counters), timeout))

    settle(logs, [1.0], outcome=lambda lease: Requeued(lease, 60_000, counted=False, reset_crashes=True))
    settle(logs, [1.0], outcome=lambda lease: Requeued(lease, 60_000, counted=False))
    settle(logs, [1.0], outcome=waiting("~paid", "u1~paid", "~lost", "u1~lost"))
    settle(logs, [1.0], outcome=waiting("~paid", "u1~paid", timeout=1000))
    settle(logs, [1.0], outcome=waiting("c1!"))
    time = r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00"
    expected = [
        rf"\[sleep\] task send-0 from send sleeps until {time}",
        r'\[wait\] task send-0 from send waits for signal "paid" or "lost"',
        rf'\[wait\] task send-0 from send waits for signal "paid" until {time}',
        r"\[wait\] task send-0 from send waits for its child c1",
    ]
    assert len(caplog.messages) == len(expected)
    for line, pattern in zip(caplog.messages, expected, strict=True):
        assert re.fullmatch(pattern, line), line
    settle(logs, [1.0] * 110, outcome=waiting("~paid"))
    logs.flush()
    assert caplog.messages[-1] == "[wait] 13 more tasks from send"


async def test_batch_has_no_line_for_the_wait_after_each_part(
    logs: LogObserver, caplog: pytest.LogCaptureFixture
) -> None:
    def waiting(lease: Lease) -> Outcome:
        return Suspended(lease, Wait((("c1", 1),)))

    settle(logs, [1.0], "names:batch", waiting)
    assert caplog.messages == []
    settle(logs, [1.0], "names", waiting)
    assert len(caplog.messages) == 1


def test_summary_comes_with_the_next_line_where_no_event_loop_runs(
    logs: LogObserver, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    logs.tasks_added(tasks(101))
    clock.advance(5000)
    assert len(caplog.messages) == 100
    logs.tasks_added(tasks(1))
    assert caplog.messages[100:] == ["[queued] 1 more task from send", "[queued] task send-0 from send"]


def test_level_is_checked_once_per_batch(clock: ManualClock) -> None:
    class Counting(logging.Logger):
        checks = 0

        def isEnabledFor(self, level: int) -> bool:
            self.checks += 1
            return False

    class Parent(logging.Logger):
        def getChild(self, suffix: str) -> logging.Logger:
            return logger

    logger = Counting("counting")
    logs = LogObserver(Parent("parent"), clock=clock)
    for report in (lambda: settle(logs, [1.0] * 500), lambda: logs.tasks_added(tasks(500))):
        logger.checks = 0
        report()
        assert logger.checks == 1


async def test_stop_writes_what_was_kept(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    @app.task
    async def send() -> None: ...

    async with app.running():
        handles = await send.enqueue_many([{}] * 350)
        for handle in handles:
            await handle
    for kind in ("queued", "done"):
        single = sum(text.startswith(f"[{kind}] task") for text in caplog.messages)
        summed = sum(int(found[2]) for text in caplog.messages if (found := SUMMARY.match(text)) and found[1] == kind)
        assert (single + summed, summed > 0) == (350, True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
async def test_forked_process_writes_its_own_summary(logs: LogObserver, clock: ManualClock) -> None:
    logs.tasks_added(tasks(101))
    reader, writer = os.pipe()
    if not (pid := os.fork()):
        records: list[logging.LogRecord] = []
        logs.task.logger.addFilter(lambda record: records.append(record) or True)  # type: ignore[func-returns-value]
        logs.tasks_added(tasks(102))  # a timer of its own
        clock.advance(1000)
        os.write(writer, records[-1].getMessage().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        assert answer.read() == "[queued] 2 more tasks from send"
    os.waitpid(pid, 0)  # noqa: ASYNC222 - it has ended
