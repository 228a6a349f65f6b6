"""`doctor` compares the `keep` of agents with what `max_kept` allows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onthedot import App
from onthedot.events import Event
from onthedot.operations.agent_health import check_agent_keep
from onthedot.operations.workers import WorkerInfo
from tests.support.waits import until

DAY = 86_400_000  # ms
PLACED = "Shop.Order.Placed"


def worker(keep: int = 8 * DAY, max_kept: int | None = 1_000_000) -> WorkerInfo:
    return WorkerInfo("w1", agent_keep={"agent.shipper": keep}, max_kept=max_kept)


def test_agent_that_is_kept_longer_than_the_store_keeps_tasks_is_a_problem() -> None:
    (check,) = check_agent_keep([worker()], 360_000)
    assert not check.ok
    assert check.text == (
        "agent shipper keeps its tasks for 8 days, but max_kept=1,000,000 lasts for 2.8 h: 360,000 tasks ended in the "
        "last hour"
    )
    assert "App(max_kept=…)" in check.remedy


@pytest.mark.parametrize(
    ("ended", "workers"),
    [
        (1_000_000 / (8 * 24), [worker()]),  # just long enough
        (0, [worker(max_kept=0)]),  # nothing has ended
        (360_000, [WorkerInfo("w1", max_kept=10)]),  # no agent
        (360_000, [worker(max_kept=None)]),  # of an older version
        (360_000, []),
    ],
)
def test_others_are_no_problem(ended: float, workers: list[WorkerInfo]) -> None:
    assert list(check_agent_keep(workers, ended)) == []


def test_least_bound_of_several_workers_decides() -> None:
    assert list(check_agent_keep([worker(), worker(max_kept=10)], 1)) != []
    assert list(check_agent_keep([worker(keep=0), worker(keep=9 * DAY)], 5_000)) != []


async def test_worker_describes_its_agents_and_its_bound() -> None:
    app: App[Any] = App("shop", store="memory://", max_kept=7)

    @app.agent("shipper", consumes=(PLACED,), keep=timedelta(days=2))
    async def shipper(event: Event[Any]) -> None: ...

    @app.task
    async def other() -> None: ...

    async with app.running():

        async def is_described() -> bool:
            return [(each.agent_keep, each.max_kept) for each in await app.operations.workers()] == [
                ({"agent.shipper": 2 * DAY}, 7)
            ]

        await until(is_described)
    app.runtime.close()
