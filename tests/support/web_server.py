"""A real uvicorn server on a loopback port, in the event loop of the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from tests.support.waits import until


class WebServer:
    def __init__(self, server: uvicorn.Server, port: int) -> None:
        self.server = server
        self.port = port

    @property
    def connections(self) -> int:
        return len(self.server.server_state.connections)


@asynccontextmanager
async def serving(api: Any, **options: Any) -> AsyncIterator[WebServer]:
    """options: of uvicorn."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(api, log_level="warning", log_config=None, **options)
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await until(lambda: server.started or running.done())
            yield WebServer(server, listener.getsockname()[1])
        finally:
            server.should_exit = True
            await running
