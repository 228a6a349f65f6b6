"""Cancel and retry of many tasks: preview, token, rate, stop; on every store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from onthedot import App
from onthedot.operations import Operations
from tests.support.app_stores import AppStore
from tests.support.waits import until
from tests.support.web_site import WebSite, web_site
from tests.unit.web.conftest import new_shop


@pytest.fixture
def shop(app_store: AppStore) -> App[Any]:
    return new_shop(app_store)


async def add(app: App[Any], count: int) -> list[str]:
    send = app.named("send").options(after=3600)
    return [(await send.enqueue(to=f"u{number}")).uuid for number in range(count)]


async def previewed(site: WebSite, body: dict[str, Any]) -> dict[str, Any]:
    """The whole preview: a part takes at most 150 ms."""
    cursor = None
    while True:
        found: dict[str, Any] = (await site.operator.post("/tasks/preview", {**body, "cursor": cursor})).json()
        cursor = found.get("cursor")
        if found["exact"]:
            return found


async def state(site: WebSite, action: str) -> str:
    return str((await site.viewer.json(f"/bulk-actions/{action}"))["state"])


async def ended(site: WebSite, action: str) -> bool:
    return await state(site, action) in ("done", "stopped", "failed")


async def test_previewed_tasks_are_cancelled_and_retried(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        await add(shop, 12)
        preview = await previewed(site, {"action": "cancel", "q": "source:send"})
        assert (preview["count"], len(preview["sample"])) == (12, 5)
        answer = await site.operator.post("/tasks/cancel", {"token": preview["token"], "reason": "typo"})
        assert (answer.status, answer.json()["found"]) == (202, 12)
        action = answer.json()["id"]
        await until(lambda: ended(site, action))
        detail = await site.viewer.json(f"/bulk-actions/{action}")
        assert (detail["state"], detail["done"], detail["changed"]) == ("done", 12, 12)
        body = {"action": "retry", "filter": {"source": "send", "state": "cancelled"}}
        token = (await previewed(site, body))["token"]
        action = (await site.operator.post("/tasks/retry", {"token": token})).json()["id"]
        await until(lambda: ended(site, action))
        assert (await site.viewer.json(f"/bulk-actions/{action}"))["changed"] == 12
        (row,) = (await site.viewer.json("/audit?action=cancel%20tasks"))["items"]
        assert (row["user"], row["filter"], row["found"], row["reason"]) == ("ana", "source:send", 12, "typo")


async def test_slow_action_is_stopped(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        uuids = await add(shop, 30)
        action = await start_slow(site, uuids)
        answer = await site.operator.send("DELETE", f"/bulk-actions/{action}")
        assert answer.json()["state"] in ("stopping", "stopped")
        await until(lambda: ended(site, action))
        detail = await site.viewer.json(f"/bulk-actions/{action}")
        assert (detail["state"], detail["done"]) == ("stopped", 1)


async def start_slow(site: WebSite, uuids: list[str]) -> str:
    """Cancel the first task; the second one has its turn in some minutes."""
    answer = await site.operator.post("/tasks/cancel", {"uuids": uuids, "rate": 0.001})
    action = str(answer.json()["id"])
    await until(lambda: has_begun(site, action))
    return action


async def has_begun(site: WebSite, action: str) -> bool:
    return (await site.viewer.json(f"/bulk-actions/{action}"))["done"] == 1


async def test_action_is_stopped_with_its_server(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    before = asyncio.all_tasks()
    app: App[Any] = App("shop", store=url)
    async with app, web_site(app) as site:
        action = await start_slow(site, await add(app, 3))
    assert asyncio.all_tasks() <= before
    app = App("shop", store=url)
    async with app, web_site(app) as site:
        detail = await site.viewer.json(f"/bulk-actions/{action}")
        assert (detail["state"], detail["done"], detail["changed"]) == ("stopped", 1, 1)


async def test_action_whose_step_does_not_end_is_stopped_and_recorded(shop: App[Any], monkeypatch: Any) -> None:
    async with shop, web_site(shop) as site:
        operations = operations_of(shop)
        began = asyncio.Event()

        async def hang(*_: str, reason: str) -> int:
            began.set()
            await asyncio.Event().wait()
            return 0

        monkeypatch.setattr(operations, "cancel", hang)
        action = (await site.operator.post("/tasks/cancel", {"uuids": await add(shop, 1)})).json()["id"]
        await began.wait()
        await operations.bulk_actions.close(patience=0)
        assert await state(site, action) == "stopped"


async def test_action_that_a_defect_ends_has_failed(shop: App[Any], monkeypatch: Any, caplog: Any) -> None:
    async with shop, web_site(shop) as site:

        async def break_down(*_: str, reason: str) -> int:
            raise RuntimeError(f"a defect with hunter2 in {reason}")

        monkeypatch.setattr(operations_of(shop), "cancel", break_down)
        action = (await site.operator.post("/tasks/cancel", {"uuids": await add(shop, 1)})).json()["id"]
        await until(lambda: ended(site, action))
        detail = await site.viewer.json(f"/bulk-actions/{action}")
        assert (detail["state"], detail["error"]) == ("failed", "RuntimeError: an error of the server; its log has it")
    assert "a defect" in caplog.text


def operations_of(app: App[Any]) -> Operations:
    client = app.runtime.portal.connected()
    assert client is not None
    return client.operations


async def test_token_is_bound_to_action_user_and_count(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        await add(shop, 101)
        preview = await previewed(site, {"action": "cancel", "q": "source:send"})
        token = preview["token"]
        for path, body in (
            ("/tasks/retry", {"token": token, "confirm": 101}),
            ("/tasks/cancel", {"token": token}),
            ("/tasks/cancel", {"token": token, "confirm": 100}),
            ("/tasks/cancel", {"token": "x" + token, "confirm": 101}),
            ("/tasks/cancel", {"token": token[:-1] + "ä", "confirm": 101}),
            ("/tasks/cancel", {}),
            ("/tasks/cancel", {"token": token, "uuids": ["a"], "confirm": 101}),
        ):
            assert (await site.operator.post(path, body)).status == 422, body
        await add(shop, 30)
        answer = await site.operator.post("/tasks/cancel", {"token": token, "confirm": 101})
        assert (answer.status, answer.json()["error"]["code"]) == (409, "conflict")
        assert (await site.operator.post("/tasks/preview", {"action": "cancel"})).status == 422
        assert (await site.viewer.get("/bulk-actions/none")).status == 404
