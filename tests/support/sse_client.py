"""Reads server-sent events over HTTP/1.1, as a browser does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from tests.support.waits import SOON


class Event(NamedTuple):
    """One event. id: None: it has no such line."""

    id: str | None
    kind: str
    data: Any


class Refused(Exception):
    """An answer other than 200: its status and its body."""


class EventConnection:
    """One connection. `raw` has all that was read, comments too."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}
        self.raw = b""
        self._unread = b""

    async def request(self, path: str, last_event_id: str) -> None:
        last = f"Last-Event-ID: {last_event_id}\r\n" if last_event_id else ""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: test\r\nAccept: text/event-stream\r\n{last}\r\n".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *lines = head.strip().splitlines()
        self.status = int(status.split()[1])
        self.headers = dict(line.lower().split(": ", 1) for line in lines)
        if self.status != 200:
            raise Refused(self.status, await self._reader.readexactly(int(self.headers["content-length"])))

    async def events(self) -> AsyncIterator[Event]:
        """Ends with the response. IncompleteReadError: the connection was lost."""
        while True:
            block, mark, rest = self._unread.partition(b"\n\n")
            if mark:
                self._unread = rest
                event = parse(block.decode())
                if event is not None:
                    yield event
            elif not await self._read_chunk():
                return

    async def _read_chunk(self) -> bool:
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        data = (await self._reader.readexactly(size + 2))[:size]
        self.raw += data
        self._unread += data
        return bool(size)

    def cut(self) -> None:
        """Without a goodbye, as when a phone loses its network."""
        self._writer.transport.abort()


def parse(block: str) -> Event | None:
    """None: a comment, or a block without an event."""
    fields = dict(line.split(":", 1) for line in block.splitlines() if not line.startswith(":"))
    if "data" not in fields:
        return None
    event_id = fields.get("id")
    return Event(None if event_id is None else event_id.strip(), fields["event"].strip(), json.loads(fields["data"]))


@asynccontextmanager
async def connect(port: int, path: str, last_event_id: str = "") -> AsyncIterator[EventConnection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    connection = EventConnection(reader, writer)
    try:
        await connection.request(path, last_event_id)
        yield connection
    finally:
        connection.cut()


async def read_all(port: int, path: str, last_event_id: str = "") -> list[Event]:
    """Up to the end of the response."""
    async with asyncio.timeout(SOON), connect(port, path, last_event_id) as connection:
        return [event async for event in connection.events()]


async def read_over_disconnects(port: int, path: str, cuts: int, kind: str) -> list[Event]:
    """Reads to the event `end`. After every second event of that kind the connection is lost, `cuts` times."""
    found: list[Event] = []
    last_id = ""
    while not found or found[-1].kind != "end":
        read = 0
        async with asyncio.timeout(SOON), connect(port, path, last_id) as connection:
            async for event in connection.events():
                found.append(event)
                last_id = event.id or last_id
                read += event.kind == kind
                if read == 2 and cuts > 0:
                    cuts -= 1
                    break
    assert cuts == 0, f"it ended {cuts} disconnects too early"
    return found
