"""``sse()`` over a real web server: wire format, errors, slow clients and ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onthedot import App, BatchPolicy, StoreUnavailable, StreamEntry, TaskNotFound, current_task
from onthedot.integrations import event_stream, message_buffer
from onthedot.integrations.fastapi import lifespan, sse
from onthedot.web import server_events, server_exit
from tests.support.sse_client import Event, Refused, connect, read_all
from tests.support.waits import SOON, every_chance, until
from tests.support.web_server import serving


class Numbers:
    """An object with ``stream(after)``: endless numbers, with an error or an end where a test wants one."""

    def __init__(self, size: int = 0) -> None:
        self.padding = "x" * size
        self.produced = 0
        self.open = 0
        self.calls: list[str] = []
        self.at: dict[int, BaseException | None] = {}  # None: the end
        self.gate: Callable[[int], bool] = lambda number: True

    async def stream(self, after: str) -> AsyncIterator[StreamEntry]:
        self.calls.append(after)
        self.open += 1
        try:
            number = int(after or 0)
            while True:
                number += 1
                await self._wait_at(number)
                if number in self.at:
                    error = self.at.pop(number)
                    if error is None:
                        yield StreamEntry(str(number - 1), number, "end", "succeeded")
                        return
                    raise error
                self.produced += 1
                yield StreamEntry(str(number), number, "item", f"{number}{self.padding}")
        finally:
            self.open -= 1

    async def _wait_at(self, number: int) -> None:
        await until(lambda: self.gate(number))


def web(handle: object) -> Starlette:
    async def events(request: Request) -> Response:
        return sse(handle, request)  # type: ignore[arg-type]

    return Starlette(routes=[Route("/", events)])


def web_of_tasks(app: App) -> FastAPI:
    api = FastAPI(lifespan=lifespan(app, run=True))

    @api.get("/tasks/{uuid}")
    async def task(uuid: str, request: Request) -> Response:
        return sse(app.ahandle(uuid), request)

    @api.get("/flows/{uuid}")
    def flow(uuid: str, request: Request) -> Response:  # runs in a thread
        return sse(app.aflow(uuid), request)

    @api.get("/batches/{uuid}")
    async def batch(uuid: str, request: Request) -> Response:
        return sse(app.batch_handle(uuid), request)

    return api


async def test_wire_format() -> None:
    numbers = Numbers()
    numbers.at = {3: None}
    async with serving(web(numbers)) as server, connect(server.port, "/") as connection:
        assert [event async for event in connection.events()] == [
            Event("1", "item", "1"), Event("2", "item", "2"), Event("2", "end", "succeeded"),
        ]  # fmt: skip
    assert connection.raw == (
        b'retry: 1000\n\nid: 1\nevent: item\ndata: "1"\n\nid: 2\nevent: item\ndata: "2"\n\n'
        b'id: 2\nevent: end\ndata: "succeeded"\n\n'
    )
    assert connection.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert connection.headers["cache-control"] == "no-store"
    assert connection.headers["x-accel-buffering"] == "no"


@pytest.mark.parametrize(
    ("path", "last_event_id", "begins"),
    [("/", "", ""), ("/?after=5", "", "5"), ("/", "7", "7"), ("/?after=5", "7", "7")],
)
async def test_replay_starts_after_the_header_else_the_address(path: str, last_event_id: str, begins: str) -> None:
    numbers = Numbers()
    numbers.at = {9: None}
    async with serving(web(numbers)) as server:
        events = await read_all(server.port, path, last_event_id)
    assert numbers.calls == [begins]
    assert [event.data for event in events[:-1]] == [str(number) for number in range(int(begins or 0) + 1, 9)]


async def test_data_is_one_line_of_plain_json(app: App) -> None:
    @app.task
    async def lines() -> AsyncIterator[dict[str, Any]]:
        yield {"text": "two\nlines", "size": (1, 2.5), "none": None}

    async with serving(web_of_tasks(app)) as server:
        handle = await lines.enqueue()
        events = await read_all(server.port, f"/tasks/{handle.uuid}")
    assert [event.data for event in events if event.kind == "item"] == [
        {"text": "two\nlines", "size": [1, 2.5], "none": None}
    ]


async def test_states_and_progress_of_a_task_have_no_id(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "LIVE_EVERY", 0.01)
    may_go_on = asyncio.Event()

    @app.task
    async def resize() -> None:
        current_task().progress(1, 4)
        await may_go_on.wait()
        current_task().progress(4, 4)

    async with serving(web_of_tasks(app)) as server:
        handle = await resize.enqueue()
        async with asyncio.timeout(SOON), connect(server.port, f"/tasks/{handle.uuid}") as connection:
            found: list[Event] = []
            async for event in connection.events():
                found.append(event)
                if event == Event(None, "progress", {"done": 1, "total": 4}):
                    may_go_on.set()
    assert Event(None, "state", "running") in found
    assert found[-2:] == [Event(None, "progress", {"done": 4, "total": 4}), Event("0-0", "end", "succeeded")]
    assert len(found) == len({repr(event) for event in found}), "a value that has not changed was sent again"


async def test_end_of_a_failed_task_is_its_state(app: App) -> None:
    @app.task
    async def broken() -> None:
        raise ValueError("secret of the server")

    async with serving(web_of_tasks(app)) as server:
        handle = await broken.enqueue()
        async with connect(server.port, f"/tasks/{handle.uuid}") as connection:
            events = [event async for event in connection.events()]
    assert events[-1] == Event("0-0", "end", "failed")
    assert b"secret" not in connection.raw


async def test_progress_of_a_flow_counts_its_tasks(app: App, send: Any) -> None:
    async with serving(web_of_tasks(app)) as server:
        handle = await (send.s("ann") | app.task(name="size")(len)).enqueue()
        await handle
        events = await read_all(server.port, f"/flows/{handle.uuid}")
    assert events == [
        Event(None, "progress", {"done": 2, "failed": 0, "total": 2}),
        Event("0-0", "end", "succeeded"),
    ]


async def test_part_has_refusals_and_error_but_without_traceback(app: App) -> None:
    @app.task(batch=BatchPolicy(split=lambda kind, count: [1, 1], top_up=0, validate=lambda item: item != "bad"))
    async def names(count: int) -> list[str]:
        if current_task().metadata["subtask_id"].endswith(":1"):
            raise ValueError("no names left")
        return ["good", "bad"]

    async with serving(web_of_tasks(app)) as server:
        batch = await app.batch(names, count=2)
        async with connect(server.port, f"/batches/{batch.id}") as connection:
            parts = [event.data async for event in connection.events() if event.kind == "part"]
    error = {"type": "ValueError", "message": "no names left", "state": "failed"}
    assert sorted(parts, key=lambda part: part["index"]) == [
        {"number": 1, "index": 0, "items": ["good"], "refused": {"invalid": 1}, "error": None},
        {"number": 2, "index": 1, "items": [], "refused": {}, "error": error},
    ]
    assert b"Traceback" not in connection.raw


@pytest.mark.parametrize("path", ["/tasks/0193-nothing", "/batches/0193-nothing", "/flows/0193-nothing"])
async def test_unknown_task_is_not_found(app: App, path: str) -> None:
    async with serving(web_of_tasks(app)) as server:
        with pytest.raises(Refused) as refused:
            await read_all(server.port, path)
    status, body = refused.value.args
    assert status == 404
    assert b"no " in body


async def test_text_that_is_no_cursor_is_a_bad_request(app: App, send: Any) -> None:
    async with serving(web_of_tasks(app)) as server:
        handle = await send.enqueue("ann")
        with pytest.raises(Refused) as refused:
            await read_all(server.port, f"/tasks/{handle.uuid}?after=seven")
    assert refused.value.args[0] == 400


def test_handle_for_sync_code_is_refused(app: App) -> None:
    request = Request({"type": "http", "headers": [], "query_string": b""})
    with pytest.raises(TypeError, match=r"is for sync code; sse\(\) takes app\.ahandle"):
        sse(app.handle("0193"), request)  # type: ignore[arg-type]


async def test_comment_comes_while_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_events, "COMMENT_EVERY", 0.02)
    numbers = Numbers()
    numbers.gate = lambda number: False
    async with serving(web(numbers)) as server, connect(server.port, "/") as connection:
        reading = asyncio.create_task(anext(aiter(connection.events())))
        await until(lambda: connection.raw.count(b":\n\n") >= 3)
        numbers.at = {1: None}
        numbers.gate = lambda number: True
        assert (await reading).kind == "end"


async def test_disconnect_ends_only_its_own_stream() -> None:
    numbers = Numbers()
    gate = 3
    numbers.gate = lambda number: number <= gate
    async with serving(web(numbers)) as server, connect(server.port, "/") as kept:
        async with connect(server.port, "/") as lost:
            await anext(aiter(lost.events()))
            await until(lambda: numbers.open == 2)
        await until(lambda: numbers.open == 1)  # at once, although no entry comes for it
        events = kept.events()
        assert [(await anext(events)).data for _ in range(3)] == ["1", "2", "3"]
        gate = 4
        assert (await anext(events)).data == "4"


async def test_client_that_reads_nothing_is_sent_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_buffer, "PATIENCE", 0.1)
    monkeypatch.setattr(message_buffer, "MOST_BYTES", 1 << 40)
    numbers = Numbers(size=100_000)
    async with serving(web(numbers)) as server:
        async with connect(server.port, "/") as connection:
            await until(lambda: numbers.produced > 0 and numbers.open == 0)  # its stream has ended
            produced = numbers.produced
            read = [event async for event in connection.events()]  # what was sent and what was queued
        assert [int(event.id or 0) for event in read] == list(range(1, produced))  # one was not queued any more
        numbers.at = {produced + 3: None}
        rest = await read_all(server.port, "/", read[-1].id or "")
    assert [event.kind for event in rest] == ["item", "item", "item", "end"]
    assert rest[0].id == str(produced)


@pytest.mark.parametrize(("size", "most"), [(1, 100), (400_000, 2), (5_000_000, 1)])
async def test_at_most_a_hundred_messages_and_a_mebibyte_are_queued(size: int, most: int) -> None:
    buffer = message_buffer.MessageBuffer()
    putting = asyncio.create_task(put_all(buffer, bytes(size)))
    await until(lambda: buffer.length >= most)
    await every_chance()
    assert buffer.length == most
    putting.cancel()


async def put_all(buffer: message_buffer.MessageBuffer, message: bytes) -> None:
    while True:
        await buffer.put(message)


async def test_client_that_reads_gets_a_long_replay_in_one_response() -> None:
    numbers = Numbers()
    numbers.at = {5001: None}
    async with serving(web(numbers)) as server:
        events = await read_all(server.port, "/")
    assert [event.data for event in events[:-1]] == [str(number) for number in range(1, 5001)]
    assert numbers.calls == [""]


async def test_stream_that_begins_again_sends_reset_and_then_all_items(app: App) -> None:
    seen = asyncio.Event()

    @app.task(max_retries=1, backoff=0)
    async def words() -> AsyncIterator[str]:
        attempt = current_task().attempt
        yield f"first {attempt}"
        await seen.wait()
        if attempt == 1:
            raise ConnectionError("the model is gone")
        yield f"second {attempt}"

    async with serving(web_of_tasks(app)) as server:
        handle = await words.enqueue()
        async with asyncio.timeout(SOON), connect(server.port, f"/tasks/{handle.uuid}") as connection:
            found: list[Event] = []
            async for event in connection.events():
                if event.kind in ("item", "reset", "end"):
                    found.append(event)
                    seen.set()
    assert [(event.kind, event.data) for event in found] == [
        ("item", "first 1"), ("reset", None), ("item", "first 2"), ("item", "second 2"), ("end", "succeeded"),
    ]  # fmt: skip
    assert found[1].id == ""  # a browser that connects after it sends no id


async def test_store_that_cannot_be_reached_ends_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "RETRY_AFTER", 0.01)
    numbers = Numbers()
    numbers.at = {3: StoreUnavailable("no answer"), 5: None}
    async with serving(web(numbers)) as server:
        events = await read_all(server.port, "/")
    assert [event.data for event in events] == ["1", "2", "3", "4", "succeeded"]
    assert numbers.calls == ["", "2"]


async def test_task_that_is_purged_meanwhile_ends_the_response() -> None:
    numbers = Numbers()
    numbers.at = {3: TaskNotFound("no task 0193")}
    async with serving(web(numbers)) as server:
        events = await read_all(server.port, "/")
    assert [event.data for event in events] == ["1", "2"]


async def test_error_of_the_object_breaks_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    numbers = Numbers()
    numbers.at = {3: ZeroDivisionError("a defect")}
    async with serving(web(numbers)) as server:
        with pytest.raises(asyncio.IncompleteReadError), caplog.at_level(logging.ERROR):
            await read_all(server.port, "/")
    assert "a defect" in caplog.text


@pytest.mark.parametrize("longest", ["LONGEST", "LONGEST_UNWATCHED"])
async def test_response_ends_after_its_longest_time(longest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_events, longest, 0.02)
    if longest == "LONGEST_UNWATCHED":
        monkeypatch.setattr(server_exit, "is_known", lambda: False)
    numbers = Numbers()
    numbers.gate = lambda number: number < 3
    async with serving(web(numbers)) as server:
        events = await read_all(server.port, "/")
    assert [event.data for event in events] == ["1", "2"]


async def test_server_that_stops_ends_its_streams() -> None:
    numbers = Numbers()
    numbers.gate = lambda number: number < 2
    async with serving(web(numbers)) as server, connect(server.port, "/") as connection:
        events = connection.events()
        assert (await anext(events)).data == "1"
        assert server_exit.is_known()
        server.server.should_exit = True
        async with asyncio.timeout(SOON):
            assert [event async for event in events] == []
        await until(lambda: server.connections == 0)


async def test_server_that_had_enough_requests_ends_its_streams() -> None:
    numbers = Numbers()
    numbers.gate = lambda number: number < 2
    async with serving(web(numbers), limit_max_requests=1) as server, connect(server.port, "/") as connection:
        events = connection.events()
        assert (await anext(events)).data == "1"
        with pytest.raises(Refused):
            await read_all(server.port, "/nothing")
        async with asyncio.timeout(SOON):
            assert [event async for event in events] == []


def test_no_server_is_known_without_one() -> None:
    assert not server_exit.is_known()
