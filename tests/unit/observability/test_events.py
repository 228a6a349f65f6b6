"""Observers receive the events of the engine, and cannot harm it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from onthedot import App
from onthedot.clock.manual import ManualClock
from onthedot.observability.events import Observer, Observers, Settled, StartedRun
from onthedot.observability.logs import LogObserver, SafeLogger
from onthedot.stores.contract import Verdict


class Recorder(Observer):
    def __init__(self) -> None:
        self.events: list[str] = []

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
    assert {name for name in vars(LogObserver) if name in events} >= events - {"tasks_started", "store_recovered"}


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


def test_another_store_failure_is_logged_after_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    clock = ManualClock()
    logs = LogObserver(None, clock=clock)
    logs.store_failed("the loop", OSError("gone"))
    logs.store_failed("heartbeat", OSError("gone"))
    clock.advance(10_000)
    logs.store_failed("heartbeat", OSError("gone"))
    assert caplog.messages[1:] == ["heartbeat failed, trying again (1 times more since): gone"]


async def test_worker_reports_starts_and_outcomes(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    for event in ("tasks_started", "tasks_settled"):
        monkeypatch.setattr(LogObserver, event, lambda _, *args, event=event: getattr(recorder, event)(*args))

    @app.task
    async def send() -> None: ...

    async with app.running():
        await (await send.enqueue())
    assert recorder.events == ["started send", "settled ok"]
