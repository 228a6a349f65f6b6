"""Workers of the API: their figures, the tasks that they run, and those that died."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from onthedot import App
from onthedot.model.worker_record import WORKERS, WorkerRecord, encode_worker_record
from onthedot.stores.contract import SeriesEntry
from tests.support.waits import SOON, until
from tests.support.web_site import web_site


async def test_worker_has_its_runs_and_figures(shop: App[Any]) -> None:
    @shop.task
    async def block(number: int) -> None:
        await asyncio.sleep(SOON)

    async with shop.running(), web_site(shop) as site:
        first = (await block.options(label="order 17 of token=abc123secret").enqueue(number=1)).uuid
        rows: list[dict[str, Any]] = []

        async def runs(number: int) -> bool:
            rows[:] = (await site.viewer.json("/workers"))["items"]
            return bool(rows[0]["running"] == number)

        await until(lambda: runs(1))
        second = (await block.enqueue(number=2)).uuid
        await until(lambda: runs(2))
        (row,) = rows
        assert [each["uuid"] for each in row["longest"]] == [first, second]
        assert row["longest"][0]["source"] == "block"
        assert row["longest"][0]["label"].startswith("order 17")
        assert "abc123secret" not in row["longest"][0]["label"]
        assert row["alive"]
        detail = await site.viewer.json(f"/workers/{row['short_id']}")
        assert [task["uuid"] for task in detail["tasks"]] == [first, second]
        assert {task["state"] for task in detail["tasks"]} == {"running"}
        assert detail["id"] == row["id"]
        assert (await site.viewer.get("/workers/nobody")).status == 404


async def test_dead_worker_is_shown_with_its_tasks(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        uuid = (await shop.named("send").enqueue(to="ann")).uuid
        now = time.time_ns() // 1_000_000
        record = WorkerRecord(host="app-1", pid=7, written=now, done=4, rss=5000, runs=[uuid], run_count=1)
        at = now // 60_000 * 60_000
        await shop.runtime.store.write_series([SeriesEntry(WORKERS, at, "w7", encode_worker_record(record))])
        (row,) = (await site.viewer.json("/workers"))["items"]
        assert (row["id"], row["host"], row["alive"], row["rss"]) == ("w7", "app-1", False, 5000)
        assert row["lost"] == {"requeued": 1, "failed": 0, "held": 0}
        assert (await site.viewer.json("/workers/w7"))["tasks"] == []
        assert (await site.viewer.json("/status"))["workers"] == 0
