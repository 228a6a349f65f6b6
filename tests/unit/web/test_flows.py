"""Flows, batches, streams and waiting tasks through the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from onthedot import App, BatchPolicy, SizeTable, current_task, group
from onthedot.errors import TaskFailed
from onthedot.operations.flow_stages import FlowStage, flow_layers
from onthedot.web.handlers import signals
from tests.support.app_stores import AppStore
from tests.support.waits import SOON, until
from tests.support.web_site import WebSite, web_site


@pytest.fixture
def studio(app_store: AppStore) -> App[Any]:
    app: App[Any] = App(app_store.name, store=app_store.url, stop_timeout=0)

    @app.task
    async def extract(day: str) -> str:
        return day

    @app.task
    async def clean(day: str, part: int = 0) -> int:
        if part < 0:
            raise ValueError(f"no part {part} at https://u:hunter2@host.example")
        return part

    @app.task(label="report of {day}")
    async def report(parts: list[int], day: str) -> int:
        return sum(parts)

    @app.task
    async def sweep() -> None: ...

    return app


def nightly(app: App[Any], day: str, *parts: int) -> Any:
    first = app.named("extract").s(day)
    cleaned = group(app.named("clean").s(day, part).after(first) for part in parts)
    return app.named("report").s(cleaned.result, day).always(app.named("sweep").s())


async def test_overview_counts_the_flows_that_have_not_ended(studio: App[Any]) -> None:
    async with studio, web_site(studio) as site:
        for day in ("monday", "tuesday", "friday"):
            flow = await nightly(studio, day, 1, 2).enqueue()
        await flow.cancel()
        assert (await site.viewer.json("/overview"))["flows"] == {"n": 2, "exact": True}
        client = studio.runtime.portal.connected()
        assert client is not None
        flows = client.operations.flows
        assert await flows.count_alive(most=2) == (1, False)  # the newest ones


async def test_flow_is_a_graph_with_layers_failures_and_handlers(studio: App[Any]) -> None:
    async with studio.running(), web_site(studio) as site:
        flow = await nightly(studio, "monday", 1, 2, -3).enqueue()
        with pytest.raises(TaskFailed, match="no part"):
            await flow.result(timeout=30)
        await until(lambda: has_swept(studio))
        detail = await site.viewer.json(f"/flows/{flow.uuid}")
        assert [(node["source"], node["count"]) for node in detail["nodes"]] == [
            ("extract", 1),
            ("clean", 3),
            ("report", 1),
        ]
        assert detail["edges"] == [[0, 1], [1, 2]]
        assert [(layer["done"], layer["failed"], layer["total"]) for layer in detail["layers"]] == [
            (1, 0, 1), (3, 1, 3), (1, 1, 1),
        ]  # fmt: skip
        assert detail["flow"]["label"] == "report of monday"
        assert (detail["flow"]["state"], detail["flow"]["failed"]) == ("failed", 2)
        (failure,) = detail["first_failures"]
        assert "no part -3" in failure["error"]
        assert "hunter2" not in str(detail)
        assert [(each["kind"], each["source"], each["state"]) for each in detail["handlers"]] == [
            ("always", "sweep", "succeeded")
        ]


async def has_swept(app: App[Any]) -> bool:
    return len(await app.operations.find(source="sweep", state="succeeded")) == 1


async def test_flows_that_have_not_ended_are_listed_alone(studio: App[Any]) -> None:
    async with studio, web_site(studio) as site:
        living = await nightly(studio, "tuesday", 1).enqueue()
        ended = await nightly(studio, "wednesday", 1).enqueue()
        await studio.aflow(ended.uuid).cancel("wrong day")

        async def ids(query: str) -> list[str]:
            return [row["id"] for row in (await site.viewer.json(f"/flows?{query}"))["items"]]

        assert await ids("") == [ended.uuid, living.uuid]
        assert await ids("state=alive") == [living.uuid]
        assert await ids("state=cancelled") == [ended.uuid]
        assert await ids("state=failed") == []


async def test_flows_are_listed_by_the_source_of_their_last_task_and_the_time_of_adding(studio: App[Any]) -> None:
    async with studio, web_site(studio) as site:
        reports = await nightly(studio, "monday", 1).enqueue()

        async def is_past() -> bool:
            """So that the second flow is added at another moment."""
            added = (await site.viewer.json(f"/flows/{reports.uuid}"))["flow"]["started_at"]
            return datetime.now(UTC) > datetime.fromisoformat(added) + timedelta(milliseconds=1)

        await until(is_past)
        cleaned = await (studio.named("extract").s("tuesday") | studio.named("clean")).enqueue()
        added = {row["id"]: row["started_at"] for row in (await site.viewer.json("/flows"))["items"]}

        async def ids(query: str) -> list[str]:
            return [row["id"] for row in (await site.viewer.json(f"/flows?{query}"))["items"]]

        assert await ids("source=report") == [reports.uuid]
        assert await ids("source=clean") == [cleaned.uuid]
        assert await ids("source=nothing") == []
        moment = quote(added[cleaned.uuid])
        assert await ids(f"until={moment}") == [reports.uuid]
        assert await ids(f"since={moment}") == [cleaned.uuid]
        assert await ids(f"source=report&since={moment}") == []
        for wrong in ("until=soon", "since=soon", "source=%00"):
            assert (await site.viewer.get(f"/flows?{wrong}")).status in (400, 422)


async def test_graph_of_too_many_nodes_has_layers_only(studio: App[Any]) -> None:
    async with studio, web_site(studio) as site:
        call = studio.named("extract").s("monday")
        for _ in range(200):
            call = studio.named("extract").s(call.result)
        flow = await call.enqueue()
        detail = await site.viewer.json(f"/flows/{flow.uuid}")
        assert (detail["nodes"], detail["edges"], len(detail["layers"])) == ([], [], 201)


def test_layers_follow_the_longest_path() -> None:
    stages = [
        FlowStage(number, "f", 1, {}, "", "", after) for number, after in enumerate([(), (0,), (1,), (), (0, 2, 3)])
    ]
    assert [[stage.number for stage in layer] for layer in flow_layers(stages)] == [[0, 3], [1], [2], [4]]


async def test_parts_of_a_batch_and_items_of_a_stream_have_pages(studio: App[Any]) -> None:
    @studio.task(batch=BatchPolicy(split=SizeTable({}, other=2)))
    async def names(count: int) -> list[dict[str, str]]:
        return [{"name": f"n{number}", "token": "hunter2"} for number in range(count)]

    @studio.task
    async def words(text: str) -> AsyncIterator[str]:
        for word in text.split():
            yield word

    async with studio.running(), web_site(studio) as site:
        batch = await studio.batch(names, count=6)
        await batch.all(timeout=SOON)
        await until(lambda: has_ended(site, batch.id))
        detail = await site.viewer.json(f"/batches/{batch.id}")
        assert [part["state"] for part in detail["states"]] == ["succeeded"] * 3
        assert (detail["batch"]["items"], detail["alive"], detail["eta"], len(detail["newest"])) == (6, 0, None, 6)
        first = await site.viewer.json(f"/batches/{batch.id}/parts?limit=2")
        rest = await site.viewer.json(f"/batches/{batch.id}/parts?limit=2&after={first['cursor']}")
        entries = [*first["items"], *rest["items"]]
        assert [(entry["number"], entry["kind"]) for entry in entries] == [(1, "part"), (2, "part"), (3, "part")]
        assert (first["ended"], rest["ended"], rest["restarted"]) == (False, True, False)
        assert "hunter2" not in str([detail, entries])
        part = await site.viewer.json(f"/tasks/{detail['states'][0]['uuid']}?include=related")
        assert part["related"]["batch"] == batch.id

        stream = await words.enqueue("to be or not")
        await stream.result(timeout=SOON)
        page = await site.viewer.json(f"/tasks/{stream.uuid}/items?limit=3")
        assert [entry["data"] for entry in page["items"]] == ["to", "be", "or"]
        page = await site.viewer.json(f"/tasks/{stream.uuid}/items?after={page['cursor']}")
        assert ([entry["data"] for entry in page["items"]], page["ended"]) == (["not"], True)
        again = await site.viewer.json(f"/tasks/{stream.uuid}/items?after=999-2")
        assert (again["restarted"], len(again["items"])) == (True, 4)
        assert (await site.viewer.get(f"/tasks/{stream.uuid}/items?after=x")).status == 400


async def has_ended(site: WebSite, batch: str) -> bool:
    return (await site.viewer.json(f"/batches/{batch}"))["batch"]["ended_at"] is not None


async def test_kept_signals_are_listed_also_if_no_task_waits_for_them(studio: App[Any]) -> None:
    async with studio.running(), web_site(studio) as site:
        await studio.signal("paid", {"order": 17})
        await studio.signal("paid", {"order": 18})
        await site.operator.post("/signals/approved", {"payload": {"by": "ann"}, "to": (await later(studio)).uuid})
        found = await site.viewer.json("/waiting")
        kept = (await site.viewer.json("/signals/paid"))["items"]
        assert found["items"] == []
        assert found["signals"] == [{"name": "paid", "waiting": 0, "kept": 2, "oldest": kept[0]["at"]}]
        assert (await site.viewer.json("/waiting?source=extract"))["signals"] == []


async def later(studio: App[Any]) -> Any:
    return await studio.named("extract").options(after=3600).enqueue("monday")


async def test_waiting_tasks_have_signals_and_counters(studio: App[Any], monkeypatch: Any) -> None:
    @studio.task(label="order {order}")
    async def approve(order: int) -> object:
        return await current_task().wait_for("approved", timeout=86_400)

    async with studio.running(), web_site(studio) as site:
        await studio.operations.pause("extract", reason="so that the flow waits")
        flow = await nightly(studio, "monday", 1, 2).enqueue()
        task = await approve.enqueue(17)
        await until(lambda: is_listed(site, task.uuid))
        found = await site.viewer.json("/waiting")
        assert found["items"][0]["uuid"] == task.uuid
        assert (found["items"][0]["signals"], found["items"][0]["label"]) == (["approved"], "order 17")
        assert found["signals"] == [{"name": "approved", "waiting": 1, "kept": 0, "oldest": None}]
        of_flow = (await site.viewer.json(f"/waiting?flow={flow.uuid}"))["items"]
        (last,) = [row for row in of_flow if row["uuid"] == flow.uuid]
        assert (last["signals"], last["reached"], last["needed"]) == ([], 0, 2)
        assert (await site.viewer.json("/waiting?signal=approved"))["items"] == found["items"][:1]
        finds: list[object] = []
        find = studio.runtime.store.find

        async def counted(*args: Any, **options: Any) -> Any:
            finds.append(args)
            return await find(*args, **options)

        monkeypatch.setattr(studio.runtime.store, "find", counted)
        monkeypatch.setattr(signals, "WAITING_AGE", 60.0)
        found = await asyncio.gather(*[site.viewer.json("/waiting?limit=1") for _ in range(5)])
        assert ([each["more"] for each in found], len(finds)) == ([True] * 5, 1)


async def is_listed(site: WebSite, uuid: str) -> bool:
    return any(row["uuid"] == uuid for row in (await site.viewer.json("/waiting"))["items"])
