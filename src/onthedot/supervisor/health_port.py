"""An HTTP port: /healthz (the supervisor lives), /readyz (all workers are ready and make progress), /metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import msgspec

from onthedot.observability.metrics import CONTENT_TYPE
from onthedot.supervisor.exit_codes import FAILED, CommandError

_REQUEST_TIMEOUT = 5.0  # seconds
_JSON = "application/json"
_OK = b'{"status":"ok"}'
_NO_FLEET = b'{"status":"no process is ready, or its store is memory://, which no other process sees"}'


class _Response(NamedTuple):
    status: str
    body: bytes
    content_type: str = _JSON


def parse_address(text: str) -> tuple[str, int]:
    """Without a host the port is on 127.0.0.1.

    >>> parse_address(":8081"), parse_address("0.0.0.0:8081")
    (('127.0.0.1', 8081), ('0.0.0.0', 8081))
    """
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text!r} is no address; write :8081 or 0.0.0.0:8081")
    return host.strip("[]") or "127.0.0.1", int(port)


class HealthPort:
    """Serves a few pages, one request per connection.

    problems: returns, by worker, why it should get no traffic; empty if all is well
    metrics: returns the text for Prometheus, about these processes
    fleet: returns the same about all processes of the store; None: it is not available
    """

    def __init__(
        self,
        host: str,
        port: int,
        problems: Callable[[], Mapping[str, str]],
        metrics: Callable[[], str],
        fleet: Callable[[], Awaitable[str | None]],
    ) -> None:
        self._host = host
        self._port = port
        self._problems = problems
        self._metrics = metrics
        self._fleet = fleet

    async def __aenter__(self) -> HealthPort:
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port)
        except OSError as error:
            message = f"--health: cannot listen on {self._host}:{self._port}: {error.strerror}"
            raise CommandError(message, FAILED) from None
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT):
                request = (await reader.readline()).split()
                while (await reader.readline()).strip():
                    pass
                path = request[1].decode("latin-1") if len(request) > 1 else ""
                found = await self._response(path.partition("?")[0])
                head = f"HTTP/1.1 {found.status}\r\nContent-Type: {found.content_type}\r\n"
                head += f"Content-Length: {len(found.body)}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode())
                if request[:1] != [b"HEAD"]:
                    writer.write(found.body)
                await writer.drain()
        except (TimeoutError, OSError, ValueError):
            pass  # the client has gone, or does not speak HTTP
        finally:
            writer.close()

    async def _response(self, path: str) -> _Response:
        match path:
            case "/healthz":
                return _Response("200 OK", _OK)
            case "/metrics":
                return _Response("200 OK", self._metrics().encode(), CONTENT_TYPE)
            case "/metrics/fleet":
                text = await self._fleet()
                if text is None:
                    return _Response("503 Service Unavailable", _NO_FLEET)
                return _Response("200 OK", text.encode(), CONTENT_TYPE)
            case "/readyz":
                problems = self._problems()
                if not problems:
                    return _Response("200 OK", _OK)
                body = msgspec.json.encode({"status": "not ready", "trouble": problems})
                return _Response("503 Service Unavailable", body)
            case _:
                return _Response(
                    "404 Not Found", b'{"status":"there is /healthz, /readyz, /metrics and /metrics/fleet"}'
                )
