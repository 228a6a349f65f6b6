"""Changes through the API: what they do, who may, and what the audit has; on every store."""

from __future__ import annotations

from typing import Any

import pytest

from onthedot import App, AtMost
from onthedot.errors import StoreUnavailable
from tests.support.app_stores import AppStore
from tests.support.waits import until
from tests.support.web_site import WebSite, web_site
from tests.unit.web.conftest import new_shop


@pytest.fixture
def shop(app_store: AppStore) -> App[Any]:
    return new_shop(app_store)


async def audit(site: WebSite, query: str = "") -> list[tuple[Any, ...]]:
    rows = (await site.viewer.json(f"/audit?{query}"))["items"]
    return [(row["user"], row["action"], row["target"], row["state"], row["changed"]) for row in rows]


async def test_task_is_added_cancelled_and_retried(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        body = {
            "source": "send",
            "args": {"to": "ann"},
            "after": 3600,
            "tags": ["eu"],
            "label": "to ann",
            "priority": 9,
        }
        answer = await site.operator.post("/tasks", body)
        assert answer.status == 201
        uuid = answer.json()["uuid"]
        assert answer.headers["location"] == f"/api/v1/tasks/{uuid}"
        row = await site.viewer.json(f"/tasks/{uuid}")
        assert (row["state"], row["label"], row["tags"], row["priority"]) == ("scheduled", "to ann", ["eu"], 9)
        assert (await site.operator.post(f"/tasks/{uuid[-12:]}/cancel", {"reason": "typo"})).json() == {"changed": 1}
        assert (await site.viewer.json(f"/tasks/{uuid}"))["reason"] == "typo"
        assert (await site.operator.post(f"/tasks/{uuid}/cancel", {})).json() == {"changed": 0}
        assert (await site.operator.post(f"/tasks/{uuid}/retry", {})).json() == {"changed": 1}
        assert (await site.operator.post(f"/tasks/{uuid}/retry", {})).json() == {"changed": 0}
        assert await audit(site) == [
            ("ana", "retry", uuid, "done", 1),
            ("ana", "cancel", uuid, "done", 0),
            ("ana", "cancel", uuid, "done", 1),
            ("ana", "add", "send", "done", 1),
        ]


async def test_idempotency_key_adds_once(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        body = {"source": "send", "args": {"to": "ann"}}
        first = await site.operator.post("/tasks", body, Idempotency_Key="order-17")
        again = await site.operator.post("/tasks", body, Idempotency_Key="order-17")
        assert (first.status, again.status) == (201, 200)
        assert first.json()["uuid"] == again.json()["uuid"]
        assert first.json()["uuid"].startswith("k-")


async def test_arguments_that_do_not_fit_are_refused(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        for body in (
            {"source": "send", "args": {"nobody": 1}},
            {"source": "send", "args": {"to": 17}},
            {"source": "a b", "args": {}},
            {"source": "send", "args": {"to": "x"}, "uuid": "a b"},
            {"source": "send", "args": {"to": "x"}, "at": "2026-01-01T00:00:00Z", "after": 1},
            {"source": "send", "args": {"to": "x"}, "priority": 11},
            {"source": "send", "args": {"self": 1}},
            {"source": "other", "args": {"self": 1}},
            {"source": "send", "args": {"to": "x"}, "unique": "\0"},
        ):
            answer = await site.operator.post("/tasks", body)
            assert (answer.status, answer.json()["error"]["code"]) == (422, "invalid"), body


async def test_defect_is_not_taken_for_a_bad_argument(monkeypatch: Any, caplog: Any) -> None:
    shop = new_shop(AppStore("shop", "memory://"))  # the client of other stores takes any error for the task's
    async with shop, web_site(shop) as site:

        async def break_down(*_: object) -> None:
            raise TypeError("a defect")

        monkeypatch.setattr(shop.runtime.store, "add", break_down)
        answer = await site.operator.post("/tasks", {"source": "send", "args": {"to": "ann"}})
        assert (answer.status, answer.json()["error"]["code"]) == (500, "internal")
    assert "a defect" in caplog.text


async def test_retry_with_other_arguments_adds_a_copy(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site:
        handle = await shop.named("send").enqueue(to="bob", password="hunter2")
        await until(lambda: has_failed(site, handle.uuid))
        answer = await site.operator.post(f"/tasks/{handle.uuid}/retry", {"args": {"to": "cy", "password": "…"}})
        assert answer.status == 201
        detail = await site.viewer.json(f"/tasks/{answer.json()['uuid']}")
        assert (detail["args"]["to"], detail["metadata"]) == ("cy", {"retried_from": handle.uuid})
        assert (await shop.get(answer.json()["uuid"])).args["password"] == "hunter2"


async def has_failed(site: WebSite, uuid: str) -> bool:
    return (await site.viewer.json(f"/tasks/{uuid}"))["state"] == "failed"


async def test_source_is_paused_frozen_and_limited(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site:
        row = (await site.operator.post("/sources/send/pause", {"reason": "vendor down, token=hunter2"})).json()
        assert row["paused"]["reason"] == "ana: vendor down, token=…"
        limits = {row["name"]: row for row in (await site.viewer.json("/limits"))["items"]}
        assert "hunter2" not in str(limits)
        rows = {row["name"]: row for row in (await site.viewer.json("/sources"))["items"]}
        assert rows["send"]["paused"] is not None
        assert (await site.operator.post("/sources/send/pause", {})).status == 422
        assert (await site.operator.post("/sources/send/resume", {})).json()["paused"] is None
        assert (await site.operator.post("/sources/send/freeze", {"reason": "x"})).json()["mode"] == "frozen"
        answer = await site.operator.post("/tasks", {"source": "send", "args": {"to": "ann"}})
        assert (answer.status, answer.json()["error"]["code"], answer.headers["retry-after"]) == (503, "frozen", "30")
        assert (await site.operator.post("/sources/send/thaw", {})).json()["mode"] == ""
        answer = await site.operator.send("PUT", "/limits/send", {"cap": 2, "rate": "10/s"})
        assert (answer.json()["cap"], answer.json()["rate"]) == (2, 10)
        answer = await site.operator.send("PUT", "/limits/send", {"cap": None})
        assert (answer.json()["cap"], answer.json()["rate"]) == (None, 10)
        for bad in ({}, {"rate": "fast"}, {"cap": -1}, {"key": "acme", "cap": 1}, {"burst": 0}):
            assert (await site.operator.send("PUT", "/limits/send", bad)).status == 422
        assert (await site.operator.post("/sources/send/degrade", {"reason": "x"})).status == 422


async def test_limits_of_operators_name_their_newest_change(app_store: AppStore) -> None:
    app: App[Any] = App(app_store.name, store=app_store.url, stop_timeout=0)

    @app.task(limits=[AtMost(5, by="customer")], concurrency=3)
    async def deliver(customer: str) -> str:
        return customer

    @app.task(limits=[AtMost(8, by="customer", name="vendor")])
    async def ask(customer: str) -> str:
        return customer

    async def changed() -> dict[str, tuple[str | None, str | None]]:
        rows = (await site.viewer.json("/sources"))["items"]
        return {each["name"]: (each["user"], each["at"]) for row in rows for each in row["limits"]}

    async with app.running(), web_site(app) as site:
        nobody = {"deliver": (None, None), "deliver/*": (None, None), "@vendor/*": (None, None)}
        assert await changed() == nobody
        await app.operations.acting_as("ben", "quota").set_limit("deliver", cap=1)
        await site.operator.send("PUT", "/limits/deliver", {"cap": 2})
        await site.operator.send("PUT", "/limits/deliver", {"rate": "fast"})
        await site.operator.send("PUT", "/limits/deliver", {"key": "a/b", "cap": 1})
        await site.operator.send("PUT", "/limits/@vendor", {"cap": 4})
        entries = (await site.viewer.json("/audit?action=limit"))["items"]
        times = [entry["at"] for entry in entries if entry["state"] == "done"]
        assert await changed() == nobody | {
            "@vendor/*": ("ana", times[0]),
            "deliver/a%2Fb": ("ana", times[1]),
            "deliver": ("ana", times[2]),
        }
        await site.operator.send("PUT", "/limits/deliver", {"cap": None})
        assert (await changed())["deliver"] == (None, None), "the limit is that of the code"


async def test_schedule_is_paused_resumed_run_and_not_deleted(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site:
        row = (await site.operator.post("/schedules/tick/pause", {"reason": "quiet"})).json()
        assert (row["enabled"], "ana: quiet" in row["reason"]) == (False, True)
        assert (await site.operator.post("/schedules/tick/resume", {})).json()["enabled"]
        assert (await site.operator.post("/schedules/tick/run", {})).status == 201
        answer = await site.operator.send("DELETE", "/schedules/tick")
        assert (answer.status, answer.json()["error"]["code"]) == (409, "conflict")
        assert (await site.operator.post("/schedules/none/run", {})).status == 404


async def test_schedule_that_is_data_is_created_edited_and_deleted(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        news = {"name": "news", "source": "send", "args": {"to": "ann", "password": "p"}, "rule": "0 8 * * *"}
        answer = await site.operator.post("/schedules", news)
        assert (answer.status, answer.json()["words"], answer.json()["owner"]) == (
            201,
            "every day at 08:00 UTC",
            "data",
        )
        revision = (await site.viewer.get("/schedules/news")).headers["etag"]
        edit = {"rule": "every 2 h", "args": {"to": "cy", "password": "…"}}
        row = (await site.operator.send("PATCH", "/schedules/news", edit, {"If-Match": revision})).json()
        assert (row["words"], row["args"]) == ("every 2 h", {"to": "cy", "password": "…"})
        assert (await site.operator.send("PATCH", "/schedules/news", edit, {"If-Match": revision})).status == 412
        added = await site.operator.post("/schedules/news/run", {})
        assert (await shop.get(added.json()["uuid"])).args == {"to": "cy", "password": "p"}
        assert len((await site.viewer.json("/schedules/news/plan?hours=5"))["items"]) >= 2
        assert (await site.operator.send("DELETE", "/schedules/news")).status == 204
        assert (await site.viewer.json("/schedules"))["items"] == []


async def test_signal_is_sent_once_and_kept(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        body = {"payload": {"by": "ana", "token": "hunter2"}, "id": "s1"}
        assert (await site.operator.post("/signals/approved", body)).json() == {"added": True}
        assert (await site.operator.post("/signals/approved", body)).json() == {"added": False}
        (row,) = (await site.viewer.json("/signals/approved"))["items"]
        assert (row["id"], row["payload"]) == ("s1", {"by": "ana", "token": "…"})
        assert (await site.operator.post("/signals/paid%2Feu%20%3F", body)).json() == {"added": True}
        assert [each["name"] for each in (await site.viewer.json("/signals/paid%2Feu%20%3F"))["items"]] == ["paid/eu ?"]
        assert (await site.operator.post("/signals/%00", {})).status == 422
        assert (await site.operator.post("/signals/approved", {"to": "nobody"})).status == 404


async def test_flows_batches_and_outbox_are_listed(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site:
        send = shop.named("send")
        flow = await (send.s(to="ann") | send.s(to="cy")).enqueue()
        assert [row["id"] for row in (await site.viewer.json("/flows"))["items"]] == [flow.uuid]
        detail = await site.viewer.json(f"/flows/{flow.uuid}")
        assert (detail["flow"]["total"], detail["edges"]) == (2, [[0, 1]])
        await flow.cancel()
        assert (await site.viewer.json("/batches"))["items"] == []
        assert (await site.viewer.json("/waiting"))["items"] == []
        assert (await site.viewer.get("/outbox")).status in (200, 404)


async def test_changes_are_bounded_per_user(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        statuses = [(await site.operator.post("/sources/send/resume", {})).status for _ in range(41)]
        assert statuses == [200] * 40 + [429]
        site.clock.advance(1000)
        assert (await site.operator.post("/sources/send/resume", {})).status == 200


async def test_change_without_an_audit_is_refused_except_in_an_emergency(
    shop: App[Any], monkeypatch: Any, caplog: Any
) -> None:
    async with shop, web_site(shop) as site:
        uuid = (await site.operator.post("/tasks", {"source": "send", "args": {"to": "a"}, "after": 60})).json()["uuid"]

        async def refuse(*_: object) -> bool:
            raise StoreUnavailable("no answer")

        monkeypatch.setattr(shop.runtime.store, "write_series", refuse)
        answer = await site.operator.send("PUT", "/limits/send", {"cap": 1})
        assert (answer.status, answer.json()["error"]["code"]) == (503, "store_unavailable")
        assert (await site.viewer.json("/limits"))["items"] == []
        assert (await site.operator.post(f"/tasks/{uuid}/cancel", {})).json() == {"changed": 1}
        assert (await site.operator.post("/sources/send/pause", {"reason": "x"})).status == 200
    assert sum("[audit]" in line for line in caplog.messages) == 2


async def test_audit_has_pages_and_filters(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        for number in range(5):
            await site.operator.send("PUT", "/limits/send", {"cap": number + 1, "reason": f"r{number}"})
        await site.browser().post("/sources/send/pause", {"reason": "x"})
        first = await site.viewer.json("/audit?limit=4")
        second = await site.viewer.json(f"/audit?limit=4&cursor={first['cursor']}")
        reasons = [row["reason"] for row in (*first["items"], *second["items"])]
        assert (reasons, second["cursor"]) == (["x", "r4", "r3", "r2", "r1", "r0"], None)
        assert [row["via"] for row in first["items"]] == ["page", "api", "api", "api"]
        assert len(await audit(site, "action=pause")) == 1
        assert await audit(site, "user=ben") == []
        assert (await site.viewer.get("/audit?cursor=x")).status == 400


async def test_failed_change_is_in_the_audit(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        await site.operator.send("PUT", "/limits/send", {"rate": "fast"})
        assert await audit(site) == [("ana", "limit", "send", "failed", 0)]
