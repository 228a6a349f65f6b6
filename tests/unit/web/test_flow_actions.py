"""Cancel and retry of a flow through the API are bulk actions: progress, rate, stop; on every store."""

from __future__ import annotations

from typing import Any

import pytest

from onthedot import App, group
from onthedot.errors import TaskFailed
from tests.support.app_stores import AppStore
from tests.support.waits import SOON, until
from tests.support.web_site import WebSite, web_site

_ONE_STEP = 0.001  # tasks per second: the second step is due in some minutes


@pytest.fixture
def grain() -> list[int]:
    return []


@pytest.fixture
def mill(app_store: AppStore, grain: list[int]) -> App[Any]:
    app: App[Any] = App(app_store.name, store=app_store.url, stop_timeout=0)

    @app.task
    async def grind(number: int) -> int:
        if number not in grain:
            raise ValueError(f"no grain {number}")
        return number

    @app.task
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    return app


def milled(app: App[Any], size: int) -> Any:
    return group(app.named("grind").s(number) for number in range(size)) | app.named("total")


async def start(site: WebSite, path: str, **body: Any) -> dict[str, Any]:
    answer = await site.operator.post(path, body)
    assert answer.status == 202
    started: dict[str, Any] = answer.json()
    return started


async def detail(site: WebSite, action: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = await site.viewer.json(f"/bulk-actions/{action['id']}")
    return found


async def finished(site: WebSite, action: dict[str, Any]) -> dict[str, Any]:
    async def is_over() -> bool:
        return (await detail(site, action))["state"] not in ("running", "stopping")

    await until(is_over)
    return await detail(site, action)


async def stopped_after_one(site: WebSite, action: dict[str, Any]) -> dict[str, Any]:
    async def has_begun() -> bool:
        return bool((await detail(site, action))["done"] == 1)

    await until(has_begun)
    await site.operator.send("DELETE", f"/bulk-actions/{action['id']}")
    return await finished(site, action)


async def test_flow_is_cancelled_as_a_bulk_action(mill: App[Any]) -> None:
    async with mill, web_site(mill) as site:
        flow = await milled(mill, 3).enqueue()
        other = await milled(mill, 2).enqueue()
        started = await start(site, f"/flows/{flow.uuid}/cancel", reason="wrong day at https://u:hunter2@host.example")
        assert "wrong day" in started["reason"]
        assert "hunter2" not in started["reason"]
        assert (started["action"], started["found"], started["rate"]) == ("cancel flow", 4, 500)
        ended = await finished(site, started)
        assert (ended["state"], ended["done"], ended["changed"]) == ("done", 4, 4)
        found = await mill.operations.find(flow=flow.uuid)
        assert {task.state.value for task in found} == {"cancelled"}
        assert all("wrong day" in str(task.reason) for task in found)
        assert (await other.progress()).done == 0
        (row,) = (await site.viewer.json("/audit?action=cancel%20flow"))["items"]
        assert (row["user"], row["filter"], row["changed"]) == ("ana", f"flow:{flow.uuid}", 4)
        assert (await start(site, f"/flows/{flow.uuid}/cancel"))["found"] == 0


async def test_stopped_cancel_of_a_flow_leaves_the_rest_and_continues_with_it(mill: App[Any]) -> None:
    async with mill, web_site(mill) as site:
        flow = await milled(mill, 3).enqueue()
        slow = await start(site, f"/flows/{flow.uuid}/cancel", rate=_ONE_STEP)
        assert (await stopped_after_one(site, slow))["state"] == "stopped"
        (ended,) = await mill.operations.find(flow=flow.uuid, state="cancelled")
        assert ended.uuid == flow.uuid, "the last task, so that it does not run for what was cancelled before it"
        again = await start(site, f"/flows/{flow.uuid}/cancel")
        assert again["found"] == 3
        assert (await finished(site, again))["changed"] == 3


async def test_stopped_retry_of_a_flow_continues_with_what_was_cancelled(mill: App[Any], grain: list[int]) -> None:
    async with mill, web_site(mill) as site:
        async with mill.running():
            flow = await milled(mill, 2).enqueue()
            with pytest.raises(TaskFailed, match="no grain"):
                await flow.result(timeout=SOON)
        slow = await start(site, f"/flows/{flow.uuid}/retry", rate=_ONE_STEP)
        assert (slow["action"], slow["found"]) == ("retry flow", 3)
        assert (await stopped_after_one(site, slow))["changed"] == 1
        (revived,) = await mill.operations.find(flow=flow.uuid, state="ready")
        assert revived.source == "grind"
        grain += [0, 1]
        again = await start(site, f"/flows/{flow.uuid}/retry")
        assert again["found"] == 2
        assert (await finished(site, again))["changed"] == 2
        async with mill.running():
            assert await flow.result(timeout=SOON) == 1


async def test_action_on_a_flow_that_does_not_exist_is_404_and_a_rate_of_zero_422(mill: App[Any]) -> None:
    async with mill, web_site(mill) as site:
        flow = await milled(mill, 1).enqueue()
        for action in ("cancel", "retry"):
            assert (await site.operator.post(f"/flows/nothing/{action}", {})).status == 404
            assert (await site.operator.post(f"/flows/{flow.uuid}/{action}", {"rate": 0})).status == 422
            assert (await site.viewer.post(f"/flows/{flow.uuid}/{action}", {})).status == 403
