"""Tasks as the API shows them, on every store."""

from __future__ import annotations

from typing import Any

import pytest

from onthedot import App
from onthedot.web.handlers import tasks
from tests.support.app_stores import AppStore
from tests.support.waits import SOON, until
from tests.support.web_site import WebSite, web_site
from tests.unit.web.conftest import new_shop


@pytest.fixture
def shop(app_store: AppStore) -> App[Any]:
    return new_shop(app_store)


async def add_three(app: App[Any]) -> list[str]:
    """Two that succeed, and bob's, which fails."""
    send = app.named("send")
    handles = [await send.enqueue(to=to, password="hunter2", order={"id": 17}) for to in ("ann", "bob", "cy")]
    for handle in handles:
        await until(lambda handle=handle: has_ended(handle))
    return [handle.uuid for handle in handles]


async def has_ended(handle: Any) -> bool:
    return (await handle.info()).state.ended


async def uuids(site: WebSite, query: str) -> list[str]:
    return [row["uuid"] for row in (await site.viewer.json(f"/tasks?{query}"))["items"]]


async def test_filters_by_box_and_by_parameters_find_the_same(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site:
        ann, bob, cy = await add_three(shop)
        both = [
            ("q=state:failed", "state=failed", [bob]),
            ("q=to:ann", "where=to=ann", [ann]),
            ("q=order.id:=17", "where=order.id:=17", [cy, bob, ann]),
            ("q=source:send%20error:Value", "source=send&error=Value", [bob]),
            (f"q=uuid:{cy}", f"uuid={cy}", [cy]),
            ("q=since:1h", "since=1h", [cy, bob, ann]),
            ("q=until:1h", "until=1h", []),
            (f"q={bob}", f"uuids={bob}", [bob]),
            ("q=mail.example", "error=mail.example", [bob]),
        ]
        for box, parameters, expected in both:
            assert await uuids(site, box) == expected, box
            assert await uuids(site, parameters) == expected, parameters


async def test_pages_continue_with_their_cursor(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site:
        added = await add_three(shop)
        found: list[str] = []
        cursor = ""
        for _ in range(3):
            page = await site.viewer.json(f"/tasks?limit=1&source=send&cursor={cursor}")
            found += [row["uuid"] for row in page["items"]]
            cursor = page["cursor"] or ""
        assert found == added[::-1]


async def test_secrets_are_hidden_everywhere_and_no_filter_reads_them(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site:
        _, bob, _ = await add_three(shop)
        paths = ["/tasks", f"/tasks/{bob}?include=explain,timeline,related", "/failures", "/overview", "/schedules"]
        for path in paths:
            answer = await site.viewer.get(path)
            assert answer.status == 200
            assert b"hunter2" not in answer.body, path
        detail = await site.viewer.json(f"/tasks/{bob}")
        assert detail["args"] == {"to": "bob", "password": "…", "order": {"id": 17}}
        assert detail["redacted"] == ["args.password"]
        for query in ("where=password=hunter2", "q=password:hunter2", "q=a.api_key:x"):
            assert (await site.viewer.get(f"/tasks?{query}")).status == 403


async def test_task_is_found_by_a_part_of_its_uuid(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site:
        ann, bob, _ = await add_three(shop)
        assert (await site.viewer.json(f"/tasks/{bob[-10:]}"))["uuid"] == bob
        answer = await site.viewer.get(f"/tasks/{ann[:4]}")
        assert answer.status == 409
        assert ann in answer.json()["error"]["candidates"]
        assert (await site.viewer.get("/tasks/nothing")).status == 404


async def test_counts_of_states_come_from_the_tally(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site:
        await add_three(shop)
        counts = (await site.viewer.json("/tasks?counts=1&state=failed"))["counts"]
        assert counts["succeeded"] == {"n": 2, "exact": True}
        assert counts["failed"] == {"n": 1, "exact": True}


async def test_counts_of_states_of_other_filters_are_bounded(shop: App[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def numbers(counts: dict[str, dict[str, Any]]) -> dict[str, tuple[int, bool]]:
        return {state: (each["n"], each["exact"]) for state, each in counts.items() if each["n"] or not each["exact"]}

    async with shop.running(), web_site(shop) as site:
        await add_three(shop)
        for query in ("q=to:ann", "q=to:ann%20state:failed", "where=to%3Dann"):
            counts = (await site.viewer.json(f"/tasks?counts=1&{query}"))["counts"]
            assert numbers(counts) == {"succeeded": (1, True)}, query
        monkeypatch.setattr(tasks, "MAX_COUNTED", 1)
        counts = (await site.viewer.json("/tasks?counts=1&q=since:1h"))["counts"]
        assert numbers(counts) == {"succeeded": (1, False), "failed": (1, True)}
        monkeypatch.setattr(tasks, "COUNT_BUDGET", -1.0)
        counts = (await site.viewer.json("/tasks?counts=1&q=since:2h"))["counts"]
        assert numbers(counts) == {"succeeded": (0, False), "failed": (0, False)}


async def test_counts_of_a_filter_are_read_again_after_a_while(shop: App[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "COUNT_AGE", SOON)
    async with shop.running(), web_site(shop) as site:
        await add_three(shop)
        first = (await site.viewer.json("/tasks?counts=1&q=since:1h"))["counts"]
        await add_three(shop)
        assert (await site.viewer.json("/tasks?counts=1&q=since:1h&limit=2"))["counts"] == first
        other = (await site.viewer.json("/tasks?counts=1&q=since:2h"))["counts"]
        assert other["succeeded"]["n"] == 2 * first["succeeded"]["n"]


async def test_result_is_a_file(shop: App[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async with shop.running(), web_site(shop) as site:
        ann, bob, _ = await add_three(shop)
        answer = await site.viewer.get(f"/tasks/{ann}/result")
        assert (answer.json(), "attachment" in answer.headers["content-disposition"]) == ("ann", True)
        assert (await site.viewer.get(f"/tasks/{bob}/result")).status == 404
        monkeypatch.setattr(tasks, "MAX_RESULT", 4)
        answer = await site.viewer.get(f"/tasks/{ann}/result")  # of five bytes
        assert (answer.status, answer.json()["error"]["code"]) == (413, "too_large")


async def test_lists_are_not_sent_again_if_nothing_changed(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        tag = (await site.viewer.get("/limits")).headers["etag"]
        answer = await site.viewer.get("/limits", If_None_Match=tag)
        assert (answer.status, answer.body) == (304, b"")


async def test_only_the_app_that_is_shown_can_be_asked_for(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        assert (await site.viewer.json(f"/status?app={shop.name}"))["app"] == shop.name
        for path in ("/status", "/tasks", "/changes", "/overview"):
            answer = await site.viewer.get(f"{path}?app=other")
            assert (answer.status, answer.json()["error"]["code"]) == (404, "not_found"), path
            assert f"shows the app {shop.name!r} only" in answer.json()["error"]["message"]
        assert (await site.operator.post("/sources/send/pause?app=other", {"reason": "x"})).status == 404
        assert (await site.viewer.json("/limits"))["items"] == []
        assert (await site.nobody.get("/status?app=other")).status == 401


async def test_status_sources_workers_and_schedules_describe_the_app(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop, environment="production") as site:
        await add_three(shop)
        status = await site.viewer.json("/status")
        assert (status["app"], status["environment"], status["workers"]) == (shop.name, "production", 1)
        (source,) = [row for row in (await site.viewer.json("/sources"))["items"] if row["name"] == "send"]
        assert (source["succeeded"], source["failed"], source["workers"]) == (2, 1, 1)
        (worker,) = (await site.viewer.json("/workers"))["items"]
        assert "send" in worker["sources"]
        (schedule,) = (await site.viewer.json("/schedules"))["items"]
        assert (schedule["source"], schedule["owner"]) == ("tick", "code")
        (group,) = (await site.viewer.json("/failures"))["items"]
        assert (group["count"], group["type"]) == (1, "ValueError")
        assert len((await site.viewer.json("/schedule-plan?hours=5"))["items"]) >= 4
