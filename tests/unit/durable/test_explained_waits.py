"""Explanations of tasks that sleep or wait: each reason is shown, and goes away with its cause."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from onthedot import App, Snooze, current_task
from onthedot.testing import TestApp

app = App("shop")


@app.task
async def order() -> Any:
    ctx = current_task()
    await ctx.step("charge", list)
    await ctx.sleep(timedelta(days=1))
    await ctx.wait_any("paid", "refused", timeout=timedelta(days=1))
    return await ctx.wait_for("approved")


@app.task
async def sale() -> int:
    ctx = current_task()
    return sum([await ctx.wait_for("paid", type=int) for _ in range(2)])


@app.task
async def snoozer() -> None:
    await current_task().step("charge", list)
    raise Snooze(3600)


@pytest.fixture
def test() -> Iterator[TestApp]:
    with TestApp(app) as test:
        yield test


def test_reasons_of_a_durable_task(test: TestApp) -> None:
    handle = order.delay()
    test.sync.run_until_idle()
    found = app.sync.explain(handle.uuid)
    assert (found.reason, found.text) == ("not_due", "it sleeps until 2026-01-02 00:00:00 UTC")
    test.sync.advance(days=1)
    found = app.sync.explain(handle.uuid)
    assert (found.reason, found.state) == ("waiting_signal", "waiting")
    assert found.text == (
        'it waits for the signal "paid" or "refused" since 2026-01-02 00:00:00 UTC, until 2026-01-03 00:00:00 UTC'
    )
    assert found.until == test.now() + timedelta(days=1)
    handle.signal("paid")
    found = app.sync.explain(handle.uuid)
    assert (found.reason, [each.reason for each in found.also]) == ("waking", ["no_worker"])
    assert found.text == "its wait is over: a worker moves it to ready at its next turn"
    test.sync.advance(60)
    found = app.sync.explain(handle.uuid)
    assert found.text == 'it waits for the signal "approved" since 2026-01-02 00:00:00 UTC'
    assert found.until is None
    handle.signal("approved")
    test.sync.run_until_idle()
    assert app.sync.explain(handle.uuid).reason == "ended"


def test_signals_that_do_not_fit_are_named(test: TestApp) -> None:
    handle = sale.delay()
    handle.signal("paid", 3)
    test.sync.run_until_idle()
    start = 'it waits for the signal "paid" since 2026-01-01 00:00:00 UTC'
    assert app.sync.explain(handle.uuid).text == start  # the one that it has taken does not count
    handle.signal("paid", "three")
    assert app.sync.explain(handle.uuid).reason == "waking"
    test.sync.run_until_idle()
    fault = "not taken: the payload does not fit the type that the task waits for"
    assert app.sync.explain(handle.uuid).text == f"{start}; 1 kept signal is {fault}"
    app.sync.signal("paid", None)
    test.sync.run_until_idle()
    assert app.sync.explain(handle.uuid).text == f"{start}; 2 kept signals are {fault}"
    handle.signal("paid", 4)
    test.sync.run_until_idle()
    assert handle.result(timeout=0) == 7


def test_snoozed_task_does_not_sleep(test: TestApp) -> None:
    handle = snoozer.delay()
    test.sync.run_until_idle()
    assert app.sync.explain(handle.uuid).text == "it is not due before 2026-01-01 01:00:00 UTC"


def test_info_of_a_task_leaves_its_steps_out(test: TestApp) -> None:
    handle = order.delay()
    test.sync.run_until_idle()
    assert handle.info().errors == ()
    assert handle.info().progress is None
