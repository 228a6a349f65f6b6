"""Schedules through the API: last and next runs, nights when clocks change, and schedules that are data."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from onthedot import App, CronSchedule, IntervalSchedule
from onthedot.clock.manual import ManualClock
from onthedot.operations.schedules import ScheduleOperations
from onthedot.testing import TestApp
from tests.support.web_site import WebSite, web_site

NEWS = {"name": "news", "source": "send", "args": {"to": "ann"}, "rule": "0 8 * * *", "tz": "Europe/Berlin"}


@asynccontextmanager
async def driven(app: App[Any], begin: datetime) -> AsyncIterator[tuple[TestApp, WebSite]]:
    with TestApp(app, ManualClock(begin)) as test:
        async with app, web_site(app) as site:
            yield test, site


@pytest.mark.parametrize(
    ("zone", "begin", "mark"),
    [
        ("Europe/Berlin", datetime(2026, 3, 27, 12, tzinfo=UTC), "gap"),
        ("Europe/Berlin", datetime(2026, 10, 23, 12, tzinfo=UTC), "first"),
        ("America/New_York", datetime(2026, 3, 6, 12, tzinfo=UTC), "gap"),
        ("America/New_York", datetime(2026, 10, 30, 12, tzinfo=UTC), "first"),
    ],
)
async def test_planned_runs_of_a_night_when_clocks_change_are_those_that_happen(
    zone: str, begin: datetime, mark: str
) -> None:
    app: App[Any] = App("shop")
    hour = 2 if "Berlin" in zone or mark == "gap" else 1

    @app.schedule(CronSchedule(f"30 {hour} * * *", tz=zone))
    async def nightly() -> None: ...

    @app.schedule(CronSchedule("30 * * * *", tz=zone))
    async def hourly() -> None: ...

    async with driven(app, begin) as (test, site):
        await test.run_until_idle()
        plan = (await site.viewer.json("/schedule-plan?hours=72&limit=1000"))["items"]
        assert [run["mark"] for run in plan if run["name"] == "nightly"] == ["", mark, ""]
        await test.advance(hours=72)
        rows = {row["name"]: row for row in (await site.viewer.json("/schedules"))["items"]}
        for name, row in rows.items():
            planned = [run["at"] for run in plan if run["name"] == name][-20:]
            assert [run["at"] for run in row["runs"]] == planned
            assert {run["state"] for run in row["runs"]} == {"succeeded"}
            for run in row["runs"]:
                assert (await site.viewer.json(f"/tasks/{run['uuid']}"))["due_at"] == run["at"]
        assert rows["nightly"]["words"] == f"every day at 0{hour}:30 {zone.split('/')[1].replace('_', ' ')}"


async def test_dots_show_runs_that_failed_were_skipped_or_paused() -> None:
    app: App[Any] = App("shop")

    @app.schedule(IntervalSchedule(60), max_retries=0)
    async def flaky() -> None:
        raise ValueError("no")

    @app.schedule(IntervalSchedule(60), max_retries=1, backoff=90)
    async def slow() -> None:
        raise ValueError("again")

    async with driven(app, datetime(2026, 1, 1, tzinfo=UTC)) as (test, site):
        await test.advance(minutes=5, seconds=30)
        await site.operator.post("/schedules/flaky/pause", {"reason": "quiet"})
        await test.advance(minutes=2)
        row = (await site.operator.post("/schedules/flaky/resume", {})).json()
        assert row["status"] == "active"
        await test.advance(minutes=1)
        rows = {row["name"]: row for row in (await site.viewer.json("/schedules"))["items"]}
        states = [run["state"] for run in rows["flaky"]["runs"]]
        assert (states, rows["flaky"]["skipped"]) == (["failed"] * 5 + ["none"] * 2 + ["failed"], {"paused": 2})
        states = [run["state"] for run in rows["slow"]["runs"]]
        assert states.count("none") == rows["slow"]["skipped"]["overlap"] > 0
        assert rows["slow"]["runs"][0]["lateness_ms"] is None  # it has run twice
        assert rows["flaky"]["lateness_ms"] is not None


async def test_schedule_that_is_data_is_created_edited_and_deleted(shop: App[Any]) -> None:
    async with driven(shop, datetime(2026, 1, 1, tzinfo=UTC)) as (test, site):
        row = (await site.operator.post("/schedules", NEWS)).json()
        assert (row["words"], row["owner"], row["next_run"]) == (
            "every day at 08:00 Berlin", "data", "2026-01-01T07:00:00Z",
        )  # fmt: skip
        assert (await site.operator.post("/schedules", NEWS)).status == 409
        await test.advance(hours=30)
        await site.operator.post("/schedules/news/pause", {"reason": "holidays"})
        seen = await site.viewer.get("/schedules/news")
        revision = seen.headers["etag"]
        assert seen.json()["revision"] == row["revision"]  # runs and pauses are no edits
        answer = await site.operator.send("PATCH", "/schedules/news", {"rule": "every 2 h"}, {"If-Match": revision})
        edited = answer.json()
        assert (answer.status, edited["words"], edited["enabled"], edited["run_count"]) == (200, "every 2 h", False, 1)
        assert (edited["args"], edited["form"]["rule"], edited["form"]["tz"]) == ({"to": "ann"}, "every 2 h", "UTC")
        stale = await site.operator.send("PATCH", "/schedules/news", {"jitter": 3}, {"If-Match": revision})
        assert (stale.status, stale.json()["error"]["code"]) == (412, "precondition_failed")
        assert (await site.operator.send("DELETE", "/schedules/news", headers={"If-Match": revision})).status == 412
        body = {"args": {"to": "cy"}, "overlap": "queue"}
        edited = (await site.operator.send("PATCH", "/schedules/news", body, {"If-Match": "*"})).json()
        assert (edited["args"], edited["form"]["overlap"], edited["words"]) == (
            {"to": "cy"}, "queue", "every 2 h, one after the other",
        )  # fmt: skip
        again = await site.operator.send("PATCH", "/schedules/news", {"grace": 5}, {"If-Match": "*"})
        assert (again.status, again.json()["args"]) == (200, {"to": "cy"})
        await site.operator.post("/schedules/news/resume", {})
        await test.advance(hours=3)
        assert (await site.viewer.json("/tasks?q=source:send%20to:cy"))["items"] != []
        assert (await site.operator.send("DELETE", "/schedules/news")).status == 204
        assert (await site.viewer.get("/schedules/news")).status == 404
        rows = (await site.viewer.json("/audit?since=400d"))["items"]
        assert [row["action"] for row in rows if row["state"] == "done"][-2:] == ["pause schedule", "create schedule"]


async def test_hidden_arguments_that_are_sent_back_stay_as_they_are(shop: App[Any]) -> None:
    order = {"url": "redis://ann:p-2@cache", "items": [{"id": 1}, {"id": 2, "token": "p-3"}]}
    stored = {"to": "ann", "password": "p-1", "order": order}
    async with driven(shop, datetime(2026, 1, 1, tzinfo=UTC)) as (_, site):
        await site.operator.post("/schedules", {**NEWS, "args": stored})
        shown = (await site.viewer.json("/schedules/news"))["args"]
        assert "p-" not in str(shown)
        shown["to"] = "cy"
        answer = await site.operator.send("PATCH", "/schedules/news", {"args": shown}, {"If-Match": "*"})
        assert answer.status == 200
        operations = ScheduleOperations(shop.runtime.store, "test")
        assert (await operations.get("news")).args == {**stored, "to": "cy"}
        shown["order"]["items"].reverse()
        answer = await site.operator.send("PATCH", "/schedules/news", {"args": shown}, {"If-Match": "*"})
        assert (answer.status, answer.json()["error"]["field"]) == (422, "args.order.items.0.token")
        body = {"source": "tick", "args": {"password": "…"}}
        answer = await site.operator.send("PATCH", "/schedules/news", body, {"If-Match": "*"})
        assert (answer.status, answer.json()["error"]["field"]) == (422, "args.password")


async def test_schedules_of_code_and_bad_rules_are_refused(shop: App[Any]) -> None:
    async with driven(shop, datetime(2026, 1, 1, tzinfo=UTC)) as (test, site):
        await test.run_until_idle()
        answer = await site.operator.send("PATCH", "/schedules/tick", {"rule": "every 2 h"}, {"If-Match": "*"})
        assert (answer.status, answer.json()["error"]["code"]) == (409, "conflict")
        assert (await site.operator.post("/schedules", {**NEWS, "name": "tick"})).status == 409
        assert (await site.operator.send("PATCH", "/schedules/none", {}, {"If-Match": "*"})).status == 404
        assert (await site.operator.send("PATCH", "/schedules/tick", {})).status == 422  # without If-Match
        for wrong in (
            {"rule": "0 25 * * *"}, {"rule": "every 0 s"}, {"tz": "Nowhere"}, {"args": {"nobody": 1}}, {"name": "a b"},
            {"rule": "2001-01-01T00:00:00Z"}, {"source": "a b"}, {"grace": -1}, {"overlap": "both"},
        ):  # fmt: skip
            answer = await site.operator.post("/schedules", {**NEWS, **wrong})
            assert (answer.status, answer.json()["error"]["code"]) == (422, "invalid"), wrong
        assert [row["name"] for row in (await site.viewer.json("/schedules"))["items"]] == ["tick"]


@pytest.mark.parametrize(
    ("rule", "words", "first"),
    [
        ("0 8 * * *", "every day at 08:00 Berlin", "2026-01-01T08:00:00+01:00"),
        ("mon-fri 07:00", "Mon–Fri at 07:00 Berlin", "2026-01-01T07:00:00+01:00"),
        ("07:30 sat,sun", "Sat, Sun at 07:30 Berlin", "2026-01-03T07:30:00+01:00"),
        ("every 15 min", "every 15 min", "2026-01-01T00:15:00+00:00"),
        ("Every hour", "every 1 h", "2026-01-01T01:00:00+00:00"),
        ("2026-12-24T18:00:00+01:00", "once at 2026-12-24T17:00:00+00:00", "2026-12-24T17:00:00+00:00"),
    ],
)
async def test_rule_is_previewed_while_it_is_typed(shop: App[Any], rule: str, words: str, first: str) -> None:
    async with driven(shop, datetime(2026, 1, 1, tzinfo=UTC)) as (_, site):
        query = f"rule={rule.replace(' ', '%20').replace('+', '%2B')}&tz=Europe/Berlin&limit=5"
        found = await site.viewer.json(f"/schedule-plan?{query}")
        assert (found["words"], found["items"][0]["wall"]) == (words, first)
        answer = await site.viewer.get("/schedule-plan?rule=0%2025%20*%20*%20*")
        assert (answer.status, answer.json()["error"]["field"]) == (400, "rule")


async def test_orphan_and_invalid_schedule_are_named(shop: App[Any]) -> None:
    async with driven(shop, datetime(2026, 1, 1, tzinfo=UTC)) as (test, site):
        await test.run_until_idle()
        store = shop.runtime.store
        (record,) = await store.schedules()
        await store.put_schedules([
            replace(record, name="old_clean", rev=0), replace(record, name="broken", rule=b"{", rev=0),
        ])  # fmt: skip
        async with shop.running():
            rows = {row["name"]: row for row in (await site.viewer.json("/schedules"))["items"]}
            assert {name: row["status"] for name, row in rows.items()} == {
                "broken": "invalid", "old_clean": "orphan", "tick": "active",
            }  # fmt: skip
            assert (rows["old_clean"]["next"], rows["broken"]["form"]) == ([], None)
            assert (await site.operator.send("DELETE", "/schedules/old_clean")).status == 204
            assert (await site.operator.send("DELETE", "/schedules/tick")).status == 409


async def test_busiest_moment_is_counted(shop: App[Any]) -> None:
    async with driven(shop, datetime(2026, 1, 1, 20, tzinfo=UTC)) as (_, site):
        for number in range(3):
            await site.operator.post("/schedules", {**NEWS, "name": f"n{number}", "rule": "00:00", "tz": "UTC"})
        plan = await site.viewer.json("/schedule-plan?hours=24")
        assert plan["busiest"] == {"at": "2026-01-02T00:00:00Z", "runs": 3}
