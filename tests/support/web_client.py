"""Requests to the HTTP API: with a token, with a cookie, or with nothing. Every answer is one that is described."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Mapping
from typing import Any

from tests.support.described_answers import check_answer
from tests.support.http_client import Answer
from tests.support.waits import SOON


class WebClient:
    """headers: of every request. prefix: of every path."""

    def __init__(self, port: int, headers: Mapping[str, str], prefix: str = "/api/v1") -> None:
        self.port = port
        self.headers = dict(headers)
        self.prefix = prefix

    def with_headers(self, **headers: str | None) -> WebClient:
        """Another client; None removes a header, and _ in a name is -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        merged = {**self.headers, **named}
        return WebClient(self.port, {name: value for name, value in merged.items() if value is not None}, self.prefix)

    def at(self, prefix: str) -> WebClient:
        return WebClient(self.port, self.headers, prefix)

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.send("GET", path, headers=headers)

    async def post(self, path: str, body: object = None, **headers: str) -> Answer:
        return await self.send("POST", path, body, headers=headers)

    async def json(self, path: str) -> Any:
        answer = await self.get(path)
        assert answer.status == 200, answer
        return answer.json()

    async def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """body: bytes as they are, anything else as JSON; None: no body."""
        named = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        return await asyncio.to_thread(self._send, method, self.prefix + path, body, {**self.headers, **named})

    def _send(self, method: str, path: str, body: object, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SOON)
        sent: bytes | None = None
        if isinstance(body, bytes):
            sent = body
        elif body is not None:
            sent = json.dumps(body).encode()
            headers = {"Content-Type": "application/json", **headers}
        elif method not in ("GET", "HEAD"):
            headers = {"Content-Type": "application/json", **headers}
        try:
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            received = Answer(answer.status, found, answer.read())
        finally:
            connection.close()
        check_answer(method, path, received)
        return received
