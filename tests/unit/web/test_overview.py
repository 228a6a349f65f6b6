"""Figures, charts and trends: every field of an answer has a source."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from onthedot import App
from onthedot.model.source_figures import FLEET, FigureRecord, Histogram, SourceFigures, encode_record
from onthedot.stores.contract import NewTask, SeriesEntry
from tests.support.waits import until
from tests.support.web_site import WebSite, web_site

MINUTE = 60_000


async def write_minute(app: App[Any], ago: int, figures: SourceFigures) -> None:
    at = (time.time_ns() // 1_000_000 // MINUTE - ago) * MINUTE
    data = encode_record(FigureRecord({"send": figures}), 10**5)
    await app.runtime.store.write_series([SeriesEntry("minutes", at, FLEET, data)])


def timed(ms: float) -> Histogram:
    histogram = Histogram()
    histogram.observe(ms)
    return histogram


async def test_overview_has_figures_and_series(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        empty = await site.viewer.json("/overview?source=other")
        assert set(empty["figures"].values()) == {None}
        await write_minute(shop, 3, SourceFigures(5, 4, 1, latency=timed(2000), lateness=timed(40)))
        await write_minute(shop, 2, SourceFigures(2, 2))
        await shop.named("send").enqueue(to="ann")
        await until(lambda: is_ready(site))
        found = await site.viewer.json("/overview?since=10m")
        assert [value for value in found["series"]["series"]["done"] if value is not None] == [4, 2]
        assert (found["series"]["step"], len(found["series"]["at"])) == (60, len(found["series"]["series"]["done"]))
        figures = found["figures"]
        assert figures["latency_p95"] == figures["latency_p50"] == pytest.approx(2, rel=0.2)
        assert figures["lateness_p99"] == pytest.approx(0.04, rel=0.2)
        assert figures["oldest_ready"] >= 0
        assert (await site.viewer.get("/overview?since=soon")).status == 400


async def is_ready(site: WebSite) -> bool:
    found = await site.viewer.json("/overview?source=send")
    return found["figures"]["oldest_ready"] is not None


async def test_overview_makes_each_read_of_the_store_once(shop: App[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the slowest page of a large store on another machine: each read is a round trip."""
    async with shop, web_site(shop) as site:
        await site.viewer.json("/overview")  # the first one also looks back
        await shop.named("send").enqueue(to="ann")
        await until(lambda: is_ready(site))
        store = shop.runtime.store
        calls: Counter[str] = Counter()
        for name in ("tally", "limits", "sessions", "schedules", "changes", "find"):
            monkeypatch.setattr(store, name, partial(counted, getattr(store, name), calls, name))
        assert (await site.operator.send("PUT", "/limits/send", {"cap": 5})).status == 200  # forgets all
        calls.clear()
        found = await site.viewer.json("/overview")
        assert [row["name"] for row in found["sources"]] == ["send"]
        finds = {"find": 3}  # what runs next, a source that no worker knows, flows
        assert calls == {"changes": 1, "tally": 1, "limits": 1, "sessions": 1, "schedules": 1} | finds


async def counted(call: Any, calls: Counter[str], name: str, *arguments: Any) -> Any:
    calls[name] += 1
    return await call(*arguments)


async def test_series_are_read_by_name(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        await write_minute(shop, 3, SourceFigures(5, 4, 1))
        found = await site.viewer.json("/series?names=failed,done&source=send&since=10m&step=60")
        assert {name: [value for value in values if value] for name, values in found["series"].items()} == {
            "failed": [1],
            "done": [4],
        }
        assert (await site.viewer.json("/series?since=7d"))["step"] == 3600
        bad = ("names=speed", "step=7", "since=soon", "until=soon", "since=1h&until=2h", "since=2999-01-01")
        for query in bad:
            assert (await site.viewer.get(f"/series?{query}")).status == 400, query


async def test_source_has_its_last_hour(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        await shop.named("send").enqueue(to="ann")
        await shop.runtime.store.add([NewTask("other", "other", b"{}")])
        await write_minute(shop, 3, SourceFigures(5, 4, 1, retried=2, latency=timed(2000)))
        await write_minute(shop, 70, SourceFigures(9, 9))
        hour = (await site.viewer.json("/sources/send"))["hour"]
        assert (len(hour["done"]), sum(hour["done"]), hour["failed"], hour["retried"]) == (12, 4, 1, 2)
        assert hour["latency_p95_ms"] == pytest.approx(2000, rel=0.2)
        hours = {row["name"]: row["hour"] for row in (await site.viewer.json("/sources"))["items"]}
        assert (hours["send"], hours["other"]) == (hour, None)


async def test_releases_of_live_workers_are_named(shop: App[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONTHEDOT_RELEASE", "shop@17")
    async with shop.running(), web_site(shop) as site:
        assert (await site.viewer.json("/overview"))["releases"] == ["shop@17"]


async def test_release_is_noted_at_its_first_start(shop: App[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async with shop, web_site(shop) as site:
        for release in ("", "r1", "r2", "r1"):
            monkeypatch.setenv("ONTHEDOT_RELEASE", release)
            async with shop.running():
                await until(partial(runs_release, site, release))
        marks = (await site.viewer.json("/overview?since=10m"))["marks"]
        for since in ("10m", "24h", "62d"):
            assert (await site.viewer.json(f"/series?since={since}"))["marks"] == marks
        assert [mark["release"] for mark in marks] == ["r1", "r2"]
        assert marks[0]["at"] <= marks[1]["at"] <= datetime.now(UTC).isoformat()


async def runs_release(site: WebSite, release: str) -> bool:
    found = await site.viewer.json("/status")
    return bool(found["workers"] == 1 and found["workers_by_release"] == ({release: 1} if release else {}))


async def test_failures_have_their_first_time_and_a_trend(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site:
        assert (await site.viewer.json("/status"))["failed"] == 0  # from now on it follows the change feed
        for _ in range(3):
            await shop.named("send").enqueue(to="bob")
        await until(lambda: has_failed(site, 3))
        await until(partial(are_grouped, site, 3))
        (group,) = (await site.viewer.json("/failures?since=1h"))["items"]
        assert datetime.fromisoformat(group["first"]) <= datetime.fromisoformat(group["last"])
        assert group["trend"] == [0] * 23 + [3]
        await until(partial(ended_lately, site, 3))
        assert (await site.viewer.json("/status"))["failed"] == 3


async def ended_lately(site: WebSite, count: int) -> bool:
    return bool(sum((await site.viewer.json("/sources/send"))["history"]) == count)


async def has_failed(site: WebSite, count: int) -> bool:
    return bool((await site.viewer.json("/tasks?counts=1"))["counts"]["failed"]["n"] == count)


async def are_grouped(site: WebSite, count: int) -> bool:
    rows = (await site.viewer.json("/failures?since=1h"))["items"]
    return [row["count"] for row in rows] == [count]


async def test_task_names_its_trace(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        body = f'{{"args":{{"to":"ann"}},"trace":"00-{trace}-00f067aa0ba902b7-01"}}'.encode()
        await shop.runtime.store.add([NewTask("traced", "send", body)])
        assert (await site.viewer.json("/tasks/traced"))["trace_id"] == trace
        plain = (await shop.named("send").enqueue(to="ann")).uuid
        assert (await site.viewer.json(f"/tasks/{plain}"))["trace_id"] is None
        for text in ("00-../../login-00f067aa0ba902b7-01", f"00-{trace}", f"00-{'0' * 32}-00f067aa0ba902b7-01"):
            body = f'{{"args":{{"to":"ann"}},"trace":"{text}"}}'.encode()
            await shop.runtime.store.add([NewTask(f"none{len(text)}", "send", body)])
            assert (await site.viewer.json(f"/tasks/none{len(text)}"))["trace_id"] is None
