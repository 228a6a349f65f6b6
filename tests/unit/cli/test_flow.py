"""``onthedot flow``: list, show, cancel and retry flows."""

from __future__ import annotations

import pytest

from onthedot import FlowHandle, TaskFailed, group
from tests.support.waits import SOON, wait_until
from tests.unit.cli.conftest import Console


class Shop:
    """A flow whose member fails until it is repaired."""

    def __init__(self, console: Console) -> None:
        self.app = console.app
        self.broken = True

        @self.app.task
        async def price(item: int) -> int:
            if item == 2 and self.broken:
                raise ValueError("no price")
            return item * 10

        @self.app.task
        async def total(prices: list[int]) -> int:
            return sum(prices)

        self.flow = group(price.s(item) for item in range(4)) | total

    def failed(self) -> FlowHandle[int]:
        handle = self.flow.delay()
        with self.app.background():
            with pytest.raises(TaskFailed):
                handle.result(timeout=SOON)
            wait_until(lambda: handle.progress().done == 5)
        return handle


def test_flows_are_listed_and_shown(console: Console) -> None:
    shop = Shop(console)
    failed = shop.failed()
    waiting = shop.flow.delay()
    listed = {flow["uuid"]: flow for flow in console.json("flow", "list")["flows"]}
    assert (listed[failed.uuid]["state"], listed[waiting.uuid]["state"]) == ("failed", "waiting")
    assert listed[failed.uuid]["progress"] == {"done": 5, "failed": 2, "total": 5}
    assert [flow["uuid"] for flow in console.json("flow", "list", "--state", "failed")["flows"]] == [failed.uuid]
    assert "5 of 5" in console.do("flow", "list")
    shown = console.do("flow", "show", failed.uuid, "--tasks")
    assert "1 cancelled, 1 failed, 3 succeeded" in shown
    assert "failed: ValueError: no price" in shown
    assert shown.count("price") >= 4
    assert "it waits for 4 of 4 tasks of flow" in console.do("flow", "show", waiting.uuid)


def test_flow_is_cancelled_and_retried(console: Console) -> None:
    shop = Shop(console)
    waiting = shop.flow.delay()
    assert "cancelled 5 tasks" in console.do("flow", "cancel", waiting.uuid)
    failed = shop.failed()
    shop.broken = False
    assert "retried 2 tasks" in console.do("flow", "retry", failed.uuid)
    with shop.app.background():
        assert failed.result(timeout=SOON) == 60
