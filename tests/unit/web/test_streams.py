"""Changes as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onthedot import App, TaskFailed
from onthedot.operations import change_feed
from onthedot.web.app_site import app_site
from onthedot.web.context import AppFacts
from onthedot.web.open_streams import MAX_STREAMS_PER_USER
from onthedot.web.server import listen, serving
from onthedot.web.settings import WebSettings
from tests.support.sse_client import parse
from tests.support.waits import SOON
from tests.support.web_site import CREDENTIALS, OPERATOR_TOKEN, WebSite, web_site


class Messages:
    """The messages of one stream, as (kind, data)."""

    def __init__(self, reader: asyncio.StreamReader, head: str) -> None:
        self._reader = reader
        self._text = b""
        self.status = int(head.split()[1])
        self.last_id = ""

    async def next(self) -> tuple[str, Any]:
        while True:
            block, mark, rest = self._text.partition(b"\n\n")
            if not mark:
                size = int(await self._reader.readuntil(b"\r\n"), 16)
                chunk = await self._reader.readexactly(size + 2)
                if size == 0:
                    return "end", None
                self._text += chunk[:-2]
                continue
            self._text = rest
            event = parse(block.decode())
            if event is not None and event.kind != "message":
                self.last_id = event.id or self.last_id
                return event.kind, event.data

    async def until(self, kind: str) -> Any:
        async with asyncio.timeout(SOON):
            while True:
                found, data = await self.next()
                if found == kind:
                    return data
                assert found != "end", f"the stream ended before {kind}"


@asynccontextmanager
async def stream(port: int, query: str, last_id: str = "") -> AsyncIterator[Messages]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    last = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
    head = f"GET /api/v1/changes?{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {OPERATOR_TOKEN}\r\n"
    writer.write(f"{head}{last}\r\n".encode())
    try:
        yield Messages(reader, (await reader.readuntil(b"\r\n\r\n")).decode())
    finally:
        writer.close()
        await writer.wait_closed()


async def test_transitions_of_a_source_arrive(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site, stream(site.port, "watch=tasks&q=source:send") as messages:
        assert (await messages.until("hello"))["user"] == "ana"
        await messages.until("counts")
        handle = await shop.named("send").enqueue(to="ann")
        states: list[str] = []
        while "succeeded" not in states:
            data = await messages.until("transitions")
            states += [each["state"] for each in data["transitions"] if each["uuid"] == handle.uuid]
        assert messages.last_id


async def test_watched_task_arrives_without_its_secrets(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site:
        await site.operator.post("/sources/send/pause", {"reason": "until the stream is open"})
        handle = await shop.named("send").enqueue(to="bob", password="hunter2")
        async with stream(site.port, f"watch=task&uuid={handle.uuid}") as messages:
            await messages.until("counts")
            await site.operator.post("/sources/send/resume", {})
            while True:
                row = await messages.until("task")
                assert "hunter2" not in str(row)
                if row["state"] == "failed":
                    break


async def test_flow_sends_its_progress(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site:
        await site.operator.post("/sources/send/pause", {"reason": "until the stream is open"})
        send = shop.named("send")
        flow = await (send.s(to="ann") | send.s(to="cy")).enqueue()
        async with stream(site.port, f"watch=flow&id={flow.uuid}") as messages:
            await messages.until("counts")
            await site.operator.post("/sources/send/resume", {})
            while (await messages.until("flow"))["progress"]["done"] < 2:
                pass


async def test_streams_see_changes_through_the_api_at_once(shop: App[Any], monkeypatch: Any) -> None:
    async with shop.running(), web_site(shop) as site, stream(site.port, "watch=overview") as messages:
        await messages.until("counts")
        client = shop.runtime.portal.connected()
        assert client is not None
        feed = client.operations.feed
        rechecks: list[str] = []
        recheck = feed.recheck

        def note() -> None:
            rechecks.append("recheck")
            recheck()

        monkeypatch.setattr(feed, "recheck", note)
        await site.viewer.get("/sources")
        assert rechecks == []
        await site.operator.post("/sources/send/pause", {"reason": "vendor down"})
        assert rechecks == ["recheck"]
        assert await messages.until("invalidate") == {"what": "limits"}


async def test_hello_has_the_position_from_which_a_stream_continues(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site:
        async with stream(site.port, "watch=tasks") as messages:
            hello = await messages.until("hello")
            assert hello["cursor"] == messages.last_id != ""
            handle = await shop.named("send").enqueue(to="ann")
            await messages.until("transitions")
        async with stream(site.port, "watch=tasks", hello["cursor"]) as messages:
            await messages.until("hello")
            assert messages.last_id == ""  # the transitions since then are yet to come
            data = await messages.until("transitions")
            assert data["transitions"][0]["uuid"] == handle.uuid


async def test_attention_arrives_when_it_changes(shop: App[Any]) -> None:
    async with shop.running(), web_site(shop) as site, stream(site.port, "watch=overview") as messages:
        assert (await messages.until("attention"))["more_attention"] == 0
        handle = await shop.named("send").enqueue(to="bob", password="hunter2")
        with pytest.raises(TaskFailed):
            await handle.result(timeout=SOON)
        while True:
            found = (await messages.until("attention"))["attention"]
            if found:
                break
        assert found[0]["kind"] == "failures"
        assert "hunter2" not in str(found)
        assert found == (await site.viewer.json("/overview"))["attention"]


async def test_progress_of_a_bulk_action_reaches_other_streams_without_its_secrets(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site, stream(site.port, "watch=tasks") as messages:
        await messages.until("counts")
        send = shop.named("send").options(after=3600)
        uuids = [(await send.enqueue(to=f"u{number}")).uuid for number in range(3)]
        body = {"uuids": uuids, "rate": 4, "reason": "password=hunter2"}
        started = (await site.operator.post("/tasks/cancel", body)).json()
        seen: list[dict[str, Any]] = []
        while not seen or seen[-1]["state"] == "running":
            seen.append(await messages.until("bulk_action"))
        assert {each["id"] for each in seen} == {started["id"]}
        assert (seen[-1]["state"], seen[-1]["changed"], seen[-1]["user"]) == ("done", 3, "ana")
        assert "hunter2" not in str(seen)


async def test_unknown_last_id_is_answered_by_a_reset(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site, stream(site.port, "watch=tasks", "other.17") as messages:
        await messages.until("reset")


async def test_first_stream_of_a_process_learns_that_its_view_may_be_old(shop: App[Any]) -> None:
    """Between the answer to a page and its stream, another process changes a limit: nothing else would report it."""
    async with shop, web_site(shop) as site:
        before = await site.operator.json("/limits")
        await shop.operations.pause("send", reason="vendor is down")
        async with stream(site.port, "watch=overview") as messages:
            await messages.until("reset")
            after = await site.operator.json("/limits")
    assert (before["items"], [row["name"] for row in after["items"]]) == ([], ["send"])


async def test_stream_of_a_quiet_store_begins_without_a_reset(shop: App[Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(change_feed, "LOOK_BACK", 0.0)
    async with shop, web_site(shop) as site, stream(site.port, "watch=overview") as first:
        await first.until("counts")
        async with stream(site.port, "watch=tasks") as second:
            await second.until("hello")
            assert (await second.next())[0] == "counts"


async def test_streams_are_bounded_and_need_credentials(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        assert (await site.nobody.get("/changes")).status == 401
        assert (await site.operator.get("/changes?watch=task&uuid=none")).status == 404
        assert (await site.operator.get("/changes?watch=other")).status == 400
        await open_many(site, MAX_STREAMS_PER_USER)


async def open_many(site: WebSite, left: int) -> None:
    if left == 0:
        answer = await site.operator.get("/changes")
        assert (answer.status, answer.json()["error"]["code"]) == (503, "too_many_streams")
        return
    async with stream(site.port, "watch=overview") as messages:
        await messages.until("hello")
        await open_many(site, left - 1)


async def test_own_server_ends_its_streams_when_it_stops(shop: App[Any]) -> None:
    settings = WebSettings(credentials=CREDENTIALS)
    async with shop:
        with listen("127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
            async with serving(app_site(shop, settings, AppFacts("shop")), listener):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                head = "GET /api/v1/changes HTTP/1.1\r\nHost: localhost\r\n"
                writer.write(f"{head}Authorization: Bearer {OPERATOR_TOKEN}\r\n\r\n".encode())
                await reader.readuntil(b"event: hello")
            assert b"event: bye" in await reader.read()
            writer.close()
            await writer.wait_closed()
