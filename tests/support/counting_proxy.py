"""A proxy in front of an HTTP server that lists the requests and the websocket messages of clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

_CONTROL = (0x8, 0x9, 0xA)  # opcodes of frames that are no messages: close, ping, pong


class Request(NamedTuple):
    """at: seconds of the event loop's clock"""

    at: float
    text: str


class CountingProxy:
    """Runs on an event loop in a thread of its own. Its methods may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: int) -> None:
        self._loop = loop
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._unanswered: set[asyncio.StreamWriter] = set()  # of clients whose request has no answer yet
        self.port = 0
        self.requests: list[Request] = []
        self.is_refusing = False  # new connections are closed at once

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 22)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def cut(self) -> None:
        """Closes all connections without a goodbye. New ones are accepted."""

        def close() -> None:
            for writer in list(self._writers):
                writer.transport.abort()

        self._loop.call_soon_threadsafe(close)

    def texts(self, since: int = 0) -> list[str]:
        return [request.text for request in self.requests[since:]]

    def has_seen(self, text: str, count: int, since: int = 0) -> bool:
        """Whether such a request came so often, and all requests have been answered."""
        return self.texts(since).count(text) >= count and not self._unanswered

    async def _serve(self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        if self.is_refusing:
            client_writer.transport.abort()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target, limit=1 << 22)
        except OSError:
            client_writer.transport.abort()
            return
        writers = {client_writer, server_writer}
        self._writers |= writers
        answers = asyncio.create_task(self._forward_answers(server_reader, client_writer))
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._forward_requests(client_reader, server_writer, client_writer)
        finally:
            answers.cancel()
            self._writers -= writers
            self._unanswered.discard(client_writer)
            for writer in writers:
                writer.close()

    async def _forward_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").strip().splitlines()
            headers = dict(line.lower().split(": ", 1) for line in lines)
            self._unanswered.add(client)
            self._note(" ".join(first.split()[:2]))
            writer.write(head + await reader.readexactly(int(headers.get("content-length", "0"))))
            if headers.get("upgrade") == "websocket":
                await self._forward_frames(reader, writer)

    async def _forward_frames(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = await reader.readexactly(2)
            length = frame[1] & 0x7F
            if length >= 126:
                extended = await reader.readexactly(2 if length == 126 else 8)
                frame += extended
                length = int.from_bytes(extended)
            frame += await reader.readexactly(length + 4)  # with the mask
            if frame[0] & 0x0F not in _CONTROL:
                self._note("websocket message")
            writer.write(frame)

    async def _forward_answers(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                client.write(data)
                self._unanswered.discard(client)
                await client.drain()
        client.close()

    def _note(self, text: str) -> None:
        self.requests.append(Request(self._loop.time(), text))


@contextmanager
def counting_proxy(target: int) -> Iterator[CountingProxy]:
    """target: the port of the server"""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="counting-proxy", daemon=True)
    thread.start()
    proxy = CountingProxy(loop, target)
    asyncio.run_coroutine_threadsafe(proxy.start(), loop).result()
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
