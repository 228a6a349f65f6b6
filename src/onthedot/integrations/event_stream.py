"""The server-sent events of one stream, for one client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Protocol

from onthedot.batches.parts import Part
from onthedot.codec.plain_json import json_value
from onthedot.errors import StoreError, StreamRestarted, TaskNotFound
from onthedot.integrations.live_values import live_values
from onthedot.integrations.message_buffer import ClientStalled, MessageBuffer
from onthedot.model.streams import StreamEntry
from onthedot.web import server_events
from onthedot.web.server_events import COMMENT, FIRST, StreamLifetime, encode_event

LIVE_EVERY = 1.0  # seconds between two reads of live values
RETRY_AFTER = 1.0  # seconds, after an error of the store

_RESTARTED = b"id:\nevent: reset\ndata: null\n\n"  # the empty id: a browser that connects again begins anew


class Streamable(Protocol):
    """An object with ``stream(after)``, such as the handle of a task or a batch."""

    def stream(self, after: str, /) -> AsyncIterator[StreamEntry]:
        """Yields the entries after that cursor, the last of which has the kind ``end``."""
        ...


def encode_entry(entry: StreamEntry) -> bytes:
    data = entry.data
    if isinstance(data, Part):
        data = data.to_dict()
    return encode_event(entry.kind, json_value(data), entry.cursor)


class EventStream:
    """Encoded events, as they come. A class and not a generator: it ends with `close`, wherever its reader was.

    A bad cursor is refused by the constructor. `open` raises TaskNotFound; after it, errors of the store end nothing.
    """

    def __init__(self, handle: Streamable, after: str) -> None:
        self._handle = handle
        self._after = after
        self._entries: AsyncIterator[StreamEntry] = handle.stream(after)
        if not hasattr(self._entries, "__aiter__"):
            raise TypeError(f"{handle!r} is for sync code; sse() takes app.ahandle(uuid) or app.batch_handle(id)")
        self._live = live_values(handle)
        self._buffer = MessageBuffer()
        self._reading: asyncio.Task[None] | None = None
        self._lifetime = StreamLifetime(self._buffer.end)

    async def open(self) -> None:
        await self._buffer.put(FIRST)
        with suppress(StoreError):  # read again soon
            await self._send_live()
        self._lifetime.start()
        self._reading = asyncio.create_task(self._read())
        self._reading.add_done_callback(lambda _: self._buffer.end())

    async def close(self) -> None:
        self._lifetime.stop()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> bytes:
        try:
            async with asyncio.timeout(server_events.COMMENT_EVERY):
                message = await self._buffer.take()
        except TimeoutError:
            return COMMENT
        if message is not None:
            return message
        if self._reading is not None and self._reading.done():
            self._reading.result()  # an error of the object that is read
        raise StopAsyncIteration

    async def _read(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                live = group.create_task(self._follow_live())
                await self._follow_entries(live)
                live.cancel()
        except* ClientStalled:  # it gets what is in the buffer, and continues with a new connection
            pass

    async def _follow_entries(self, live: asyncio.Task[None]) -> None:
        while True:
            try:
                await self._send_entries(live)
            except StreamRestarted:
                await self._buffer.put(_RESTARTED)
                self._after = ""
            except StoreError:  # the client of the app reports it
                await asyncio.sleep(RETRY_AFTER)
            except TaskNotFound:  # purged meanwhile; the next connection gets 404
                return
            else:
                return
            self._entries = self._handle.stream(self._after)

    async def _send_entries(self, live: asyncio.Task[None]) -> None:
        try:
            async for entry in self._entries:
                if entry.kind == "end":
                    live.cancel()
                    await asyncio.wait([live])
                    await self._send_live()
                await self._buffer.put(encode_entry(entry))
                self._after = entry.cursor
                self._live.on_entry()
        finally:
            close = getattr(self._entries, "aclose", None)  # of a generator
            if close is not None:
                await close()

    async def _follow_live(self) -> None:
        while True:
            await asyncio.sleep(LIVE_EVERY)
            with suppress(StoreError, TaskNotFound):  # so that the entries are read on; they raise it, too
                await self._send_live()

    async def _send_live(self) -> None:
        for value in await self._live.read():
            await self._buffer.put(encode_event(value.kind, json_value(value.data)))
