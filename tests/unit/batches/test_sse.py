"""Server-sent events over a real HTTP server: a browser that is cut off continues where it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from onthedot import App, BatchPolicy, current_task
from tests.support.waits import SOON

PARTS = 40
CUTS = 20


class Event(NamedTuple):
    id: str
    event: str
    data: str


class SseServer:
    """``GET /batches/<id>``, with the header Last-Event-ID of a browser that reconnects."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        headers = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        batch = self._app.batch_handle(path.rpartition("/")[2])
        with suppress(ConnectionError):
            async for entry in batch.stream(after=headers.get("last-event-id", "")):
                data = entry.data if entry.kind == "end" else entry.data.to_dict() | {"number": entry.number}
                writer.write(f"id: {entry.cursor}\nevent: {entry.kind}\ndata: {json.dumps(data)}\n\n".encode())
                await writer.drain()
        writer.close()


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[tuple[SseServer, int]]:
    sse = SseServer(app)
    server = await asyncio.start_server(sse.serve, "127.0.0.1", 0)
    async with server:
        yield sse, server.sockets[0].getsockname()[1]


async def read_events(port: int, batch: str, after: str, most: int) -> list[Event]:
    """As a browser does; it is cut off after `most` events."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    last = f"Last-Event-ID: {after}\r\n" if after else ""
    writer.write(f"GET /batches/{batch} HTTP/1.1\r\nHost: test\r\n{last}\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    events: list[Event] = []
    while len(events) < most:
        try:
            text = (await reader.readuntil(b"\n\n")).decode()
        except asyncio.IncompleteReadError:
            break
        fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
        events.append(Event(fields["id"], fields["event"], fields["data"]))
        if fields["event"] == "end":
            break
    writer.transport.abort()  # without a goodbye, as when a phone loses its network
    return events


async def test_every_part_comes_once_over_twenty_disconnects(app: App) -> None:
    @app.task(batch=BatchPolicy(split=lambda kind, count: [1] * count, at_once=4))
    async def numbers(count: int) -> list[int]:
        await asyncio.sleep(0.01)
        return [int(current_task().metadata["subtask_id"].rpartition(":")[2])]

    events: list[Event] = []
    cuts = 0
    async with app.running(), serving(app) as (server, port):
        batch = await app.batch(numbers, count=PARTS)
        while not events or events[-1].event != "end":
            after = events[-1].id if events else ""
            async with asyncio.timeout(SOON):
                events += await read_events(port, batch.id, after, most=2 if cuts < CUTS else PARTS)
            cuts += 1
        assert server.requests == cuts
    assert cuts > CUTS
    assert [event.event for event in events] == ["part"] * PARTS + ["end"]
    found = [json.loads(event.data) for event in events[:-1]]
    assert [part["number"] for part in found] == list(range(1, PARTS + 1))
    assert sorted(item for part in found for item in part["items"]) == list(range(PARTS))
    assert json.loads(events[-1].data) == "succeeded"
