"""An HTTP port with /healthz (the supervisor lives) and /readyz (all workers are ready and make progress)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from onthedot.supervisor.exit_codes import FAILED, CommandError

_REQUEST_TIMEOUT = 5.0  # seconds
_OK = b'{"status":"ok"}'


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
    """`problems` returns, by worker, why it should get no traffic; empty if all is well."""

    def __init__(self, host: str, port: int, problems: Callable[[], Mapping[str, str]]) -> None:
        self._host = host
        self._port = port
        self._problems = problems

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
                status, body = self._answer(path.partition("?")[0])
                head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                writer.write(head.encode() + b"Connection: close\r\n\r\n")
                if request[:1] != [b"HEAD"]:
                    writer.write(body)
                await writer.drain()
        except (TimeoutError, OSError, ValueError):
            pass  # the client has gone, or does not speak HTTP
        finally:
            writer.close()

    def _answer(self, path: str) -> tuple[str, bytes]:
        if path == "/healthz":
            return "200 OK", _OK
        if path != "/readyz":
            return "404 Not Found", b'{"status":"there is /healthz and /readyz"}'
        problems = self._problems()
        if not problems:
            return "200 OK", _OK
        return "503 Service Unavailable", msgspec.json.encode({"status": "not ready", "trouble": problems})
