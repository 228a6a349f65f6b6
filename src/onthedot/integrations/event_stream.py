"""The server-sent events of one stream, for one client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Protocol

import msgspec

from onthedot.batches.parts import Part
from onthedot.codec.plain_json import json_value
from onthedot.errors import StoreError, StreamRestarted, TaskNotFound
from onthedot.integrations.live_values import live_values
from onthedot.integrations.message_buffer import ClientStalled, MessageBuffer
from onthedot.model.streams import StreamEntry
from onthedot.web import server_exit

COMMENT_EVERY = 15.0  # seconds without a message: proxies close a connection on which nothing comes
LIVE_EVERY = 1.0  # seconds between two reads of live values
RETRY_AFTER = 1.0  # seconds, after an error of the store
LONGEST = 1800.0  # seconds for which a stream lives; then the browser continues with a new one
LONGEST_UNWATCHED = 30.0  # the same, where the server does not show that it stops, and so waits for its streams

_FIRST = b"retry: 1000\n\n"  # ms until a browser connects again
_COMMENT = b":\n\n"
_RESTARTED = b"id:\nevent: reset\ndata: null\n\n"  # the empty id: a browser that connects again begins anew


class Streamable(Protocol):
    """An object with ``stream(after)``, such as the handle of a task or a batch."""

    def stream(self, after: str, /) -> AsyncIterator[StreamEntry]:
        """Yields the entries after that cursor, the last of which has the kind ``end``."""
        ...


def encode_event(kind: str, data: object, cursor: str | None = None) -> bytes:
    """One event. cursor: None: it cannot be replayed, and leaves the id of the event before.

    >>> encode_event("item", "a", "7-1")
    b'id: 7-1\\nevent: item\\ndata: "a"\\n\\n'
    """
    named = "" if cursor is None else f"id: {cursor}\n"
    return f"{named}event: {kind}\ndata: ".encode() + msgspec.json.encode(json_value(data)) + b"\n\n"


def encode_entry(entry: StreamEntry) -> bytes:
    data = entry.data
    if isinstance(data, Part):
        data = data.to_dict()
    return encode_event(entry.kind, data, entry.cursor)


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
        self._end_of_life: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        await self._buffer.put(_FIRST)
        with suppress(StoreError):  # read again soon
            await self._send_live()
        lifetime = LONGEST if server_exit.is_known() else LONGEST_UNWATCHED
        self._end_of_life = asyncio.get_running_loop().call_later(lifetime, self._buffer.end)
        server_exit.exit_watch().add(self, self._buffer.end)
        self._reading = asyncio.create_task(self._read())
        self._reading.add_done_callback(lambda _: self._buffer.end())

    async def close(self) -> None:
        server_exit.exit_watch().remove(self)
        if self._end_of_life is not None:
            self._end_of_life.cancel()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> bytes:
        try:
            async with asyncio.timeout(COMMENT_EVERY):
                message = await self._buffer.take()
        except TimeoutError:
            return _COMMENT
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
            await self._buffer.put(encode_event(value.kind, value.data))
