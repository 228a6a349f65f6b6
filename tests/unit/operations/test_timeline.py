"""The timeline of a task has recorded parts only."""

from __future__ import annotations

from onthedot import App
from onthedot.operations.timeline import timeline
from onthedot.testing import TestApp


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
