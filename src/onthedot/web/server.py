"""uvicorn inside an event loop of ours: we handle the signals, and open streams do not delay the end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any, Protocol, runtime_checkable

from starlette.types import ASGIApp

from onthedot.errors import DeclarationError
from onthedot.web.security import MAX_HEADERS

try:
    import uvicorn
except ImportError as _error:
    raise ImportError("onthedot.web.server needs uvicorn: pip install 'onthedot[web]'") from _error

_STOP_TIME = 3  # seconds that answers have at the end
_BACKLOG = 512


@runtime_checkable
class _StreamingApp(Protocol):
    def end_streams(self) -> None: ...


def end_streams(app: object) -> None:
    """End the responses of an app that would go on."""
    if isinstance(app, _StreamingApp):
        app.end_streams()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """The loop that this server is part of handles them."""
        yield


def listen(host: str, port: int, tries: int = 1) -> socket.socket:
    """Bind the port, or the next free one of `tries`. DeclarationError: none is free, or the host is not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    problem = ""
    for number in range(port, port + tries):
        try:
            listener = socket.create_server((host, number), family=family, backlog=_BACKLOG)
        except OSError as error:
            problem = (error.strerror or str(error)).partition(" (while")[0]
        else:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio sets it only on its own sockets
            return listener
    raise DeclarationError(f"cannot listen on {host}:{port}: {problem}")


def address_of(listener: socket.socket) -> str:
    """The address as in a URL.

    >>> with listen("127.0.0.1", 0) as listener:
    ...     address_of(listener).startswith("127.0.0.1:")
    True
    """
    host, port, *_ = listener.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@asynccontextmanager
async def serving(app: ASGIApp, listener: socket.socket, *, access_log: bool = False) -> AsyncGenerator[None, None]:
    """Serve while the block runs. RuntimeError: the server ended by itself."""
    options: dict[str, Any] = {
        "log_config": None,
        "log_level": "warning",  # its INFO lines are about itself
        "access_log": access_log,
        "server_header": False,
        "date_header": True,
    }
    config = uvicorn.Config(
        app,
        http="h11",  # the only one whose size of headers is bounded
        h11_max_incomplete_event_size=2 * MAX_HEADERS,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=_STOP_TIME,
        **options,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            await asyncio.wait([running], timeout=0.01)
            if running.done():
                running.result()
                raise RuntimeError("the web server ended before it was ready")
        yield
    finally:
        server.should_exit = True
        end_streams(app)
        await running
