"""The details of a batch through the API: times and workers of its parts, top-ups, retries, the estimate of its end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from onthedot import App, BatchPolicy, Dedup, SizeTable, current_task
from onthedot.operations.batches import BatchInfo, BatchProgress
from onthedot.web.handlers.batches import estimated_end
from tests.support.app_stores import AppStore
from tests.support.waits import until
from tests.support.web_site import WebSite, web_site


@pytest.fixture
def studio(app_store: AppStore) -> App[Any]:
    return App(app_store.name, store=app_store.url, stop_timeout=0)


async def has_ended(site: WebSite, batch: str) -> bool:
    return (await site.viewer.json(f"/batches/{batch}"))["batch"]["ended_at"] is not None


async def test_batches_are_listed_by_task_and_time_of_adding(studio: App[Any]) -> None:
    policy = BatchPolicy(split=SizeTable({}, other=5))

    @studio.task(batch=policy)
    async def names(count: int) -> list[str]:
        return [str(number) for number in range(count)]

    @studio.task(batch=policy)
    async def places(count: int) -> list[str]:
        return [str(number) for number in range(count)]

    async with studio, web_site(studio) as site:
        first = await studio.batch(names, count=5)

        async def ids(query: str) -> list[str]:
            return [row["id"] for row in (await site.viewer.json(f"/batches?{query}"))["items"]]

        async def is_past() -> bool:
            """So that the second batch is added at another moment."""
            added = (await site.viewer.json(f"/batches/{first.id}"))["batch"]["started_at"]
            return datetime.now(UTC) > datetime.fromisoformat(added) + timedelta(milliseconds=1)

        await until(is_past)
        second = await studio.batch(places, count=5)
        moment = quote((await site.viewer.json(f"/batches/{second.id}"))["batch"]["started_at"])
        assert await ids("") == [second.id, first.id]
        assert await ids("source=names") == [first.id]
        assert await ids("source=names:batch") == []
        assert await ids(f"until={moment}") == [first.id]
        assert await ids(f"since={moment}") == [second.id]
        assert await ids(f"source=names&since={moment}") == []
        for wrong in ("until=soon", "since=soon", "source=%00"):
            assert (await site.viewer.get(f"/batches?{wrong}")).status in (400, 422)


async def test_ended_parts_have_time_and_worker_and_the_batch_its_top_ups_and_retries(studio: App[Any]) -> None:
    """Both parts of the request give the same names, and the first one fails once."""

    @studio.task(
        batch=BatchPolicy(split=SizeTable({}, other=2), dedup=Dedup(key="name"), over=1), max_retries=1, backoff=0.01
    )
    async def names(count: int) -> list[dict[str, str]]:
        task = current_task()
        index = int(task.metadata["subtask_id"].rpartition(":")[2])
        if index == 0 and task.attempt == 1:
            raise ConnectionError("the model does not answer")
        words = ("alpha", "beta") if index < 2 else ("gamma", "delta")
        return [{"name": word} for word in words[:count]]

    async with studio.running(), web_site(studio) as site:
        batch = await studio.batch(names, count=4)
        await until(lambda: has_ended(site, batch.id))
        detail = await site.viewer.json(f"/batches/{batch.id}")
        (worker,) = await studio.operations.workers()
        assert [part["worker"] for part in detail["parts"]] == [worker.id] * 3
        assert all(0 <= part["ms"] < 60_000 for part in detail["parts"])
        assert (detail["batch"]["items"], detail["topped_up"], detail["retries"]) == (4, 2, 1)
        assert detail["refused"] == {"duplicate": 2}
        assert detail["eta_error_ms"] is None


async def test_part_that_its_batch_gave_up_has_the_worker_that_ran_it(studio: App[Any]) -> None:
    @studio.task(batch=BatchPolicy(split=SizeTable({}, other=1), top_up=0))
    async def names(count: int) -> list[str]:
        index = int(current_task().metadata["subtask_id"].rpartition(":")[2])
        if index == 1:
            await asyncio.Event().wait()
        return ["alpha"]

    async with studio.running(), web_site(studio) as site:
        batch = await studio.batch(names, count=2, deadline=10)
        found: dict[str, Any] = {}

        async def is_given_up() -> bool:
            found.update(await site.viewer.json(f"/batches/{batch.id}"))
            return any(part["error"] and part["ms"] is not None for part in found["parts"])

        await until(is_given_up)
        (given_up,) = [part for part in found["parts"] if part["error"]]
        (worker,) = await studio.operations.workers()
        assert "deadline" in given_up["error"]
        assert (given_up["worker"], given_up["ended_at"] >= found["deadline"]) == (worker.id, True)


def test_error_of_the_estimated_end_shrinks_with_the_number_of_parts() -> None:
    added = datetime(2026, 1, 1, tzinfo=UTC)
    now = added + timedelta(seconds=4)

    def of(done: int, total: int) -> object:
        return estimated_end(BatchInfo("b", "names", "", "waiting", BatchProgress(done, 0, total, 0, 0), added), now)

    assert of(0, 8) is None
    assert of(8, 8) is None
    assert of(4, 8) == (now + timedelta(seconds=4), timedelta(seconds=2))
    assert of(16, 32) == (now + timedelta(seconds=4), timedelta(seconds=1))
