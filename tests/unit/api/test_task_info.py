"""The answer of ``app.get`` and ``handle.info`` about a task: its result, how long it ran, and all of it as JSON."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onthedot import App, Reject, TaskInfo, TaskNotFound, TaskPage
from tests.support.app_stores import AppStore
from tests.support.waits import LONG, until

FIELDS = """
    uuid source state args priority attempt retries crashes added_at schedule_at started_at ended_at worker label tags
    metadata unique lane reason error errors progress cancel_wanted result result_status duration flow
""".split()  # noqa: SIM905 -- read and compared as a block


@dataclass
class Invoice:
    number: int
    sent: datetime


SENT = datetime(2026, 1, 31, tzinfo=UTC)


class Shop:
    """An app with a task for each way in which a task ends."""

    def __init__(self, store: AppStore) -> None:
        self.app: App[Any] = App(store.name, store=store.url, stop_timeout=0)

        @self.app.task
        async def bill(number: int) -> Invoice:
            await asyncio.sleep(0.05)
            return Invoice(number, SENT)

        @self.app.task
        async def nothing() -> None: ...

        @self.app.task
        async def opaque() -> object:
            return object()

        @self.app.task(keep_result=0)
        async def brief() -> int:
            return 1

        @self.app.task
        async def refuse() -> None:
            raise Reject("no")

        @self.app.task(max_retries=3, backoff=LONG)
        async def flaky() -> None:
            raise OSError("no route")

        self.bill = bill
        self.nothing = nothing
        self.opaque = opaque
        self.brief = brief
        self.refuse = refuse
        self.flaky = flaky


@pytest.fixture
def shop(app_store: AppStore) -> Shop:
    return Shop(app_store)


async def ended(shop: Shop, task: Any, *args: Any) -> TaskInfo:
    handle = await task.enqueue(*args)
    await handle.exception(timeout=LONG)
    return await shop.app.get(handle.uuid)


async def test_task_info_has_the_result_and_the_duration_of_the_run(shop: Shop) -> None:
    async with shop.app.running():
        info = await ended(shop, shop.bill, 7)
        assert (info.result, info.result_status) == (Invoice(7, SENT), "stored")
        assert info.duration is not None
        assert timedelta(milliseconds=40) < info.duration < timedelta(seconds=LONG)
        page = await shop.app.find(source="bill")
        assert isinstance(page, TaskPage)
        assert page.tasks == (info,)
        assert await shop.bill.ahandle(info.uuid).info() == info


async def test_result_status_tells_why_there_is_no_result(shop: Shop) -> None:
    async with shop.app.running():
        for task, status in (
            (shop.nothing, "stored"), (shop.opaque, "not_stored"), (shop.brief, "expired"), (shop.refuse, "none"),
        ):  # fmt: skip
            info = await ended(shop, task)
            assert (info.source, info.result, info.result_status) == (task.name, None, status)
        waiting = await shop.nothing.options(after=LONG).enqueue()
        info = await waiting.info()
        assert (info.result, info.result_status, info.duration) == (None, "pending", None)
        await waiting.cancel()
        info = await waiting.info()
        assert (info.state, info.result_status, info.duration) == ("cancelled", "none", None)


async def test_task_that_is_cancelled_while_it_awaits_its_retry_has_no_duration(shop: Shop) -> None:
    """The time from the start of its last run to the cancel is not the time of a run."""
    async with shop.app.running():
        handle = await shop.flaky.enqueue()

        async def awaits_its_retry() -> bool:
            return (await handle.info()).retries == 1

        await until(awaits_its_retry)
        assert (await handle.info()).duration is None
        await handle.cancel()
        info = await handle.info()
        assert (info.state, info.started_at is not None, info.duration) == ("cancelled", True, None)


async def test_task_info_as_a_dict_is_json(shop: Shop) -> None:
    async with shop.app.running():
        info = await ended(shop, shop.bill, 7)
        shown = info.to_dict()
        assert list(shown) == FIELDS
        assert json.loads(json.dumps(shown, allow_nan=False)) == shown
        assert (shown["state"], shown["args"], shown["tags"], shown["error"]) == ("succeeded", {"number": 7}, [], None)
        assert shown["result"] == {"number": 7, "sent": "2026-01-31T00:00:00Z"}
        assert info.duration is not None
        assert (shown["result_status"], shown["duration"]) == ("stored", info.duration.total_seconds())
        assert datetime.fromisoformat(shown["ended_at"]) == info.ended_at
        failed = (await ended(shop, shop.refuse)).to_dict()
        assert (failed["error"]["message"], failed["error"]["attempt"], failed["result"]) == ("no", 1, None)


async def test_task_info_of_any_values_is_json(app: App[Any]) -> None:
    @app.task
    async def odd(value: Any) -> Any:
        return value

    values = [{(1, 2): b"a"}, float("nan"), {1, 2}, 2**80, {"a": {3: timedelta(1)}}]
    async with app.running():
        for value in values:
            shown = (await ended_of(app, odd, value)).to_dict()
            json.dumps(shown, allow_nan=False)
            assert shown["args"] == {"value": shown["result"]}
    assert shown["result"] == {"a": {"3": "P1D"}}


async def ended_of(app: App[Any], task: Any, value: object) -> TaskInfo:
    handle = await task.enqueue(value)
    await handle
    return await app.get(handle.uuid)


async def test_result_of_another_annotation_is_shown_as_plain_values(app: App[Any]) -> None:
    """The function has changed since; reading a task never fails for that."""

    @app.task(name="count")
    async def words() -> str:
        return "three"

    async with app.running():
        handle = await words.enqueue()
        await handle
    later = App("shop", store="memory://")

    @later.task(name="count")
    async def numbers() -> int:
        return 3

    later.runtime.use_store(app.runtime.store)
    info = await later.get(handle.uuid)
    assert (info.result, info.result_status) == ("three", "stored")


async def test_app_takes_whole_uuids_only(app: App[Any], send: Any) -> None:
    """An HTTP handler that passes on what it was sent finds no task by a part of its uuid."""
    handle = await send.enqueue("ann")
    for part in ("", handle.uuid[:1], handle.uuid[:-1], handle.uuid[1:]):
        for look in (app.get, app.explain, app.operations.get, app.operations.explain):
            with pytest.raises(TaskNotFound) as refused:
                await look(part)
            assert handle.uuid not in str(refused.value)
    assert (await app.get(handle.uuid)).uuid == handle.uuid
