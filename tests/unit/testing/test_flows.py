"""Flows in tests that turn a clock: they run to their end without waiting."""

from __future__ import annotations

from onthedot import App, group
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
