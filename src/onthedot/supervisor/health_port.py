"""A tiny HTTP port: /healthz (this process lives) and /readyz (the workers are ready and get on)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import click
import msgspec

from onthedot.cli.options import CliError

_PATIENCE = 5.0  # seconds for a request


def address(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """ ":8081" is on 127.0.0.1; say 0.0.0.0:8081 where others must reach it."""
    if value is None:
        return None
    host, _colon, port = value.rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 65_536:
        raise click.BadParameter(f"{value!r} is no address; write :8081 or 0.0.0.0:8081")
    return host.strip("[]") or "127.0.0.1", int(port)


class HealthPort:
    def __init__(self, host: str, port: int, trouble: Callable[[], Mapping[str, str]]) -> None:
        self._host, self._port = host, port
        self._trouble = trouble

    async def __aenter__(self) -> HealthPort:
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port)
        except OSError as error:
            raise CliError(f"--health: cannot listen on {self._host}:{self._port}: {error.strerror}", 1) from None
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                words = (await reader.readline()).split()
                while (await reader.readline()).strip():
                    pass
                status, body = self._answer(words[1].decode("latin-1").partition("?")[0] if len(words) > 1 else "")
                head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                writer.write(head.encode() + b"Connection: close\r\n\r\n" + (b"" if words[:1] == [b"HEAD"] else body))
                await writer.drain()
        except (TimeoutError, OSError, ValueError):
            pass  # whoever asked has gone, or does not speak HTTP
        finally:
            writer.close()

    def _answer(self, path: str) -> tuple[str, bytes]:
        if path == "/healthz":
            return "200 OK", b'{"status":"ok"}'
        if path != "/readyz":
            return "404 Not Found", b'{"status":"there is /healthz and /readyz"}'
        trouble = self._trouble()
        if not trouble:
            return "200 OK", b'{"status":"ok"}'
        return "503 Service Unavailable", msgspec.json.encode({"status": "not ready", "trouble": trouble})
