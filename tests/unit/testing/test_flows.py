"""Flows in tests that turn a clock: they run to their end without waiting."""

from __future__ import annotations

import pytest

from onthedot import App, FlowHandle, TaskCancelled, TaskFailed, current_task, group
from onthedot.testing import TestApp


def test_flow_runs_to_its_end_and_in_time() -> None:
    app = App("shop", store="memory://")

    @app.task
    async def double(number: int) -> int:
        return number * 2

    @app.task
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    with TestApp(app) as test:
        handle = (group(double.s(number) for number in range(4)) | total | double.options(after=3600)).delay()
        test.sync.run_until_idle()
        assert handle.progress().done == 5
        test.sync.advance(hours=1)
        assert handle.result(timeout=0) == 24


def test_spawned_flow_runs_within_the_same_call() -> None:
    app = App("shop", store="memory://")
    spawned: list[FlowHandle[int]] = []

    @app.task
    async def double(number: int) -> int:
        return number * 2

    @app.task
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    @app.task
    async def order() -> None:
        spawned.append(current_task().spawn(group(double.s(number) for number in range(4)) | total))

    with TestApp(app) as test:
        handle = order.delay()
        assert test.sync.run_until_idle() == 6
        assert handle.result(timeout=0) is None
        (inner,) = spawned
        assert inner.result(timeout=0) == 12


def test_flow_is_retried_and_runs_what_its_failure_has_cancelled() -> None:
    app = App("shop", store="memory://")
    broken = True
    runs: list[str] = []

    @app.task
    async def check(number: int) -> int:
        runs.append(f"check {number}")
        if broken and number == 2:
            raise ValueError("no 2")
        return number

    @app.task
    async def total(numbers: list[int]) -> int:
        runs.append("total")
        return sum(numbers)

    with TestApp(app) as test:
        handle = (group(check.s(number) for number in range(4)) | total).delay()
        test.sync.run_until_idle()
        with pytest.raises(TaskFailed, match="no 2"):
            handle.result(timeout=0)
        broken = False
        assert handle.retry() == 2
        test.sync.run_until_idle()
        assert handle.result(timeout=0) == 6
    assert runs[4:] == ["check 2", "total"]


def test_flow_is_cancelled_with_all_that_is_left_of_it() -> None:
    app = App("shop", store="memory://")

    @app.task
    async def check(number: int) -> int:
        return number

    @app.task
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    with TestApp(app) as test:
        later = [check.options(after=3600 * number).s(number) for number in range(4)]
        handle = (group(later) | total).delay()
        test.sync.advance(hours=1)
        assert handle.cancel("enough") == 3
        test.sync.run_until_idle()
        with pytest.raises(TaskCancelled, match="enough"):
            handle.result(timeout=0)
        assert sorted(info.state for info in handle.tasks()) == ["cancelled"] * 3 + ["succeeded"] * 2
        test.sync.advance(hours=5)
        assert handle.progress().done == 5
