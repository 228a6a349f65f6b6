"""One HTTP request, from async and from sync code."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any, NamedTuple

from tests.support.waits import SOON


class Answer(NamedTuple):
    """headers: with lower-case names"""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def request(port: int, method: str, path: str, body: object = None) -> Answer:
    """body: sent as JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SOON)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, {} if sent is None else {"Content-Type": "application/json"})
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, headers, answer.read())
    finally:
        connection.close()


async def fetch(port: int, method: str, path: str, body: object = None) -> Answer:
    return await asyncio.to_thread(request, port, method, path, body)
