"""Observers receive the events of the engine, and cannot harm it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from onthedot import App
from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreUnavailable
from onthedot.observability.events import Observer, Observers, Settled, StartedRun
from onthedot.observability.logs import LogObserver, SafeLogger
from onthedot.observability.meter import Meter
from onthedot.stores.contract import NewTask, Record, Verdict


class Recorder(Observer):
    def __init__(self) -> None:
        self.events: list[str] = []

    def tasks_added(self, tasks: Sequence[NewTask]) -> None:
        self.events += [f"added {task.source}" for task in tasks]

    def task_differs(self, record: Record, fields: Sequence[str]) -> None:
        self.events.append(f"differs {record.source}: {', '.join(fields)}")

    def windows_skipped(self, schedule: str, reason: str, windows: int) -> None:
        self.events.append(f"skipped {schedule}")

    def tasks_started(self, runs: Sequence[StartedRun]) -> None:
        self.events += [f"started {run.record.source}" for run in runs]

    def tasks_settled(self, settled: Sequence[Settled], verdicts: Sequence[Verdict], now: float) -> None:
        self.events += [f"settled {verdict}" for (_, run), verdict in zip(settled, verdicts, strict=True) if run]

    def schedule_fired(self, schedule: str, at: int) -> None:
        self.events.append(f"fired {schedule} {at}")


class Broken(Observer):
    def schedule_fired(self, schedule: str, at: int) -> None:
        raise OSError("metrics port is taken")


def test_failing_observer_is_switched_off_after_one_error(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder()
    observers = Observers([Broken(), recorder], SafeLogger(logging.getLogger("onthedot")))
    observers.schedule_fired("hourly", 1)
    observers.schedule_fired("hourly", 2)
    assert recorder.events == ["fired hourly 1", "fired hourly 2"]
    assert caplog.messages == ["observer Broken is switched off: schedule_fired failed: metrics port is taken"]


def test_group_passes_on_every_event() -> None:
    events = {name for name in vars(Observer) if not name.startswith("_")}
    assert events <= vars(Observers).keys()
    logged = {name for name in events if getattr(LogObserver, name) is not getattr(Observer, name)}
    counted = {name for name in events if getattr(Meter, name) is not getattr(Observer, name)}
    only_counted = {
        "tasks_started", "buckets_changed", "events_received", "events_sent", "waiter_resumed", "batch_part_ended",
        "batch_responded",
    }  # fmt: skip
    only_traced = {"store_slow"}
    assert logged >= events - only_counted - only_traced
    assert counted >= only_counted


def test_store_failure_is_logged_once_per_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    clock = ManualClock()
    logs = LogObserver(None, clock=clock)
    for _ in range(5):
        logs.store_failed("the loop", OSError("gone"))
    assert caplog.messages == ["the loop failed, trying again: gone"]
    clock.advance(60_000)
    logs.store_failed("the loop", OSError("gone"))
    assert caplog.messages[1:] == ["the loop failed, trying again (4 times more since): gone"]


def test_outage_of_the_bus_is_logged_once_per_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clock = ManualClock()
    logs = LogObserver(None, clock=clock)
    logs.bus_recovered("sending")
    for _ in range(61):
        logs.bus_failed("sending", OSError("no answer"))
        clock.advance(1_000)
    logs.bus_recovered("sending")
    logs.bus_recovered("sending")
    assert caplog.messages == [
        "sending: the bus does not answer, trying again: no answer",
        "sending: the bus does not answer, trying again (59 times more since): no answer",
        "the bus is back after 61.0 s: sending succeeded",
    ]
    assert {record.name for record in caplog.records} == {"onthedot.events"}


def test_another_store_failure_is_logged_after_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    clock = ManualClock()
    logs = LogObserver(None, clock=clock)
    logs.store_failed("the loop", OSError("gone"))
    logs.store_failed("heartbeat", OSError("gone"))
    clock.advance(10_000)
    logs.store_failed("heartbeat", OSError("gone"))
    assert caplog.messages[1:] == ["heartbeat failed, trying again (1 times more since): gone"]


def test_recovery_of_the_store_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    logs = LogObserver(None, clock=clock)
    logs.store_recovered("the loop")
    assert caplog.messages == []
    logs.store_failed("the loop", StoreUnavailable("gone"))
    clock.advance(12_000)
    logs.store_failed("heartbeat", StoreUnavailable("gone"))
    logs.store_recovered("heartbeat")
    logs.store_recovered("the loop")
    assert caplog.messages[2:] == ["the store is back after 12.0 s: heartbeat succeeded"]


@pytest.fixture
def recorder(app: App) -> Iterator[Recorder]:
    recorder = Recorder()
    with app.runtime.override(replace(app.runtime.config, observers=(Broken(), recorder))):
        yield recorder


async def test_worker_and_client_report_to_all_observers(app: App, recorder: Recorder) -> None:
    @app.task
    async def send(to: str = "") -> None: ...

    async with app.running():
        await (await send.options(uuid="u1").enqueue())
    assert recorder.events == ["added send", "started send", "settled ok"]


def test_adds_and_schedule_changes_of_a_client_reach_all_observers(
    app: App, recorder: Recorder, clock: ManualClock
) -> None:
    @app.task
    async def send(to: str = "") -> None: ...

    send.options(uuid="u1").delay()
    send.options(uuid="u1").delay("ann")
    send.delay_many([{}, {}])
    assert recorder.events == ["added send", "differs send: argument 'to'", "added send", "added send"]
    recorder.events.clear()
    app.sync.schedules.put("often", send.s(), timedelta(seconds=10))
    app.sync.schedules.run("often")
    app.sync.schedules.pause("often")
    clock.advance(60_000)
    app.sync.schedules.resume("often")
    assert recorder.events == ["added send", "skipped often"]
