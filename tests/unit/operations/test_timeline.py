"""The timeline of a task has recorded parts only."""

from __future__ import annotations

from typing import Any

from onthedot import App, current_task
from onthedot.operations.timeline import TimelineSegment, timeline
from onthedot.testing import TestApp
from tests.support.app_access import call_operations


def parts_of(app: App[Any], uuid: str) -> list[TimelineSegment]:
    return call_operations(app, lambda operations: operations.timeline(uuid))


def lengths(parts: list[TimelineSegment]) -> list[tuple[str, float | None]]:
    """Seconds by kind; None: it goes on."""
    return [(part.kind, None if part.end is None else (part.end - part.begin).total_seconds()) for part in parts]


def test_run_after_an_operators_retry_has_no_guessed_part_before_it() -> None:
    """The runs before the retry are not recorded, and the time of the task is that of the retry."""
    app = App("shop", store="memory://")

    @app.task(max_retries=0)
    async def fail() -> None:
        raise ValueError("again")

    with TestApp(app) as test:
        handle = fail.delay()
        test.sync.drain()
        test.sync.advance(seconds=600)
        handle.retry()
        test.sync.drain()
        info = handle.info()
    assert [(part.kind, part.attempt) for part in timeline(info)] == [("running", 2)]


def test_scheduled_task_has_its_wait_and_its_run() -> None:
    app = App("shop", store="memory://")

    @app.task
    async def succeed() -> None: ...

    with TestApp(app) as test:
        handle = succeed.options(after=60).delay()
        test.sync.advance(seconds=60)
        test.sync.drain()
        info = handle.info()
    assert [part.kind for part in timeline(info)] == ["scheduled", "running"]


def test_due_time_of_a_retry_divides_backoff_from_pending() -> None:
    """Also the time for which the task was added is known from its first failure."""
    app = App("shop", store="memory://")

    @app.task(max_retries=1, backoff=10)
    async def fail_once() -> None:
        if current_task().attempt == 1:
            raise ValueError("again")

    with TestApp(app) as test:
        handle = fail_once.options(after=60).delay()
        test.sync.advance(seconds=60)
        app.sync.operations.acting_as("ana").pause("fail_once", reason="wait")
        test.sync.advance(seconds=90)
        app.sync.operations.acting_as("ana").resume("fail_once")
        test.sync.run_until_idle()
        parts = parts_of(app, handle.uuid)
    assert [part.kind for part in parts] == ["scheduled", "running", "backoff", "pending", "running"]
    (backoff, pending) = parts[2:4]
    assert (lengths(parts)[0], pending.end) == (("scheduled", 60), parts[4].begin)
    assert backoff.end == pending.begin
    assert lengths([backoff])[0][1] != 0
    assert [each.user for each in pending.paused] == ["ana"]


def test_wait_for_a_signal_is_named_while_it_lasts_and_afterwards() -> None:
    app = App("shop", store="memory://")

    @app.task
    async def approve() -> str:
        await current_task().wait_for("approved", timeout=3600)
        return "done"

    with TestApp(app) as test:
        handle = approve.delay()
        test.sync.run_until_idle()
        (run, wait) = [part for part in parts_of(app, handle.uuid) if part.kind != "pending"]
        assert (run.kind, wait.kind, wait.text, wait.end) == ("running", "waiting", 'signal "approved"', None)
        test.sync.advance(seconds=30)
        app.sync.signal("approved", True)
        test.sync.run_until_idle()
        parts = [part for part in parts_of(app, handle.uuid) if part.kind != "pending"]
    assert [part.kind for part in parts] == ["running", "waiting", "running"]
    assert (parts[1].text, lengths(parts)[1]) == ('signal "approved"', ("waiting", 30))
    assert [part.attempt for part in parts] == [1, 1, 1]


def test_wait_that_timed_out_and_a_sleep_are_recorded() -> None:
    app = App("shop", store="memory://")

    @app.task
    async def patient() -> str:
        await current_task().sleep(20)
        try:
            await current_task().wait_for("approved", timeout=60)
        except TimeoutError:
            return "late"
        return "done"

    with TestApp(app) as test:
        handle = patient.delay()
        test.sync.run_until_idle()
        asleep = parts_of(app, handle.uuid)[-1]
        assert (asleep.kind, asleep.text, asleep.end) == ("scheduled", "sleep", None)
        test.sync.advance(seconds=20)
        test.sync.advance(seconds=60)
        assert handle.result() == "late"
        parts = [each for each in parts_of(app, handle.uuid) if each.kind != "pending"]
    assert [part.kind for part in parts] == ["running", "scheduled", "running", "waiting", "running"]
    assert (lengths(parts)[1], lengths(parts)[3]) == (("scheduled", 20), ("waiting", 60))
    assert parts[3].text == 'signal "approved", which did not come in time'


def test_wait_for_a_child_is_recorded() -> None:
    app = App("shop", store="memory://")

    @app.task
    async def child() -> int:
        return 1

    @app.task
    async def parent() -> int:
        return await current_task().run(child.s())

    with TestApp(app) as test:
        handle = parent.delay()
        test.sync.drain()
        assert handle.result() == 1
        parts = [part for part in parts_of(app, handle.uuid) if part.kind == "waiting"]
    assert len(parts) == 1
    assert parts[0].text.startswith("child child ")


def test_recorded_pauses_overlay_the_pending_parts() -> None:
    app = App("shop", store="memory://")

    @app.task
    async def send() -> None: ...

    with TestApp(app) as test:
        operations = app.sync.operations.acting_as("ana")
        operations.pause("send", reason="vendor down")
        test.sync.advance(seconds=10)
        handle = send.delay()
        test.sync.advance(seconds=30)
        operations.resume("send")
        operations.pause("send", reason="again")  # before a worker has looked
        test.sync.advance(seconds=5)
        (pending,) = parts_of(app, handle.uuid)
        operations.resume("send")
        operations.pause("other", reason="not this one")
        test.sync.run_until_idle()
        parts = parts_of(app, handle.uuid)
    assert [(each.user, each.reason, each.end is None) for each in pending.paused] == [
        ("ana", "vendor down", False), ("ana", "again", True),
    ]  # fmt: skip
    assert pending.paused[0].begin == pending.begin, "only the part of the pause in which the task was pending"
    spans = [(each.end - each.begin).total_seconds() for each in parts[0].paused if each.end is not None]
    assert spans == [30, 5]
    assert [part.kind for part in parts] == ["pending", "running"]


def test_task_that_was_cancelled_before_its_first_run_has_its_time_until_then() -> None:
    app = App("shop", store="memory://")

    @app.task
    async def send() -> None: ...

    with TestApp(app) as test:
        handle = send.options(after=60).delay()
        test.sync.advance(seconds=20)
        handle.cancel()
        test.sync.drain()
        parts = parts_of(app, handle.uuid)
    assert lengths(parts) == [("scheduled", 20)]
