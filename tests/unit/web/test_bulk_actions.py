"""Cancel and retry of many tasks: preview, token, rate, stop."""

from __future__ import annotations

from typing import Any

from onthedot import App
from tests.support.waits import until
from tests.support.web_site import WebSite, web_site


async def add(app: App[Any], count: int) -> list[str]:
    send = app.named("send").options(after=3600)
    return [(await send.enqueue(to=f"u{number}")).uuid for number in range(count)]


async def state(site: WebSite, action: str) -> str:
    return str((await site.viewer.json(f"/bulk-actions/{action}"))["state"])


async def ended(site: WebSite, action: str) -> bool:
    return await state(site, action) in ("done", "stopped", "failed")


async def test_previewed_tasks_are_cancelled_and_retried(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        await add(shop, 12)
        preview = (await site.operator.post("/tasks/preview", {"action": "cancel", "q": "source:send"})).json()
        assert (preview["count"], len(preview["sample"])) == (12, 5)
        answer = await site.operator.post("/tasks/cancel", {"token": preview["token"], "reason": "typo"})
        assert (answer.status, answer.json()["found"]) == (202, 12)
        action = answer.json()["id"]
        await until(lambda: ended(site, action))
        detail = await site.viewer.json(f"/bulk-actions/{action}")
        assert (detail["state"], detail["done"], detail["changed"]) == ("done", 12, 12)
        body = {"action": "retry", "filter": {"source": "send", "state": "cancelled"}}
        token = (await site.operator.post("/tasks/preview", body)).json()["token"]
        action = (await site.operator.post("/tasks/retry", {"token": token})).json()["id"]
        await until(lambda: ended(site, action))
        assert (await site.viewer.json(f"/bulk-actions/{action}"))["changed"] == 12
        (row,) = (await site.viewer.json("/audit?action=cancel%20tasks"))["items"]
        assert (row["user"], row["filter"], row["found"], row["reason"]) == ("ana", "source:send", 12, "typo")


async def test_slow_action_is_stopped(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        uuids = await add(shop, 30)
        answer = await site.operator.post("/tasks/cancel", {"uuids": uuids, "rate": 4})
        action = answer.json()["id"]
        assert (await site.operator.send("DELETE", f"/bulk-actions/{action}")).json()["state"] == "stopping"
        await until(lambda: ended(site, action))
        detail = await site.viewer.json(f"/bulk-actions/{action}")
        assert detail["state"] == "stopped"
        assert 1 <= detail["done"] < 30


async def test_token_is_bound_to_action_user_and_count(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        await add(shop, 101)
        preview = (await site.operator.post("/tasks/preview", {"action": "cancel", "q": "source:send"})).json()
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
