"""A small HTTP server on a loopback port that gives the answers of a test to POST requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """Of one request. body: plain values, sent as JSON."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = {}


class Received(NamedTuple):
    """A request."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class AnsweringServer:
    """Gives one answer after the other, the last one to all that follow."""

    def __init__(self, port: int, *answers: Answer) -> None:
        self.requests: list[Received] = []
        self._answers = list(answers)
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.requests.append(Received(self.path, dict(self.headers.items()), body))
                answer = server.next_answer()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(json.dumps(answer.body).encode())

            def log_message(self, *args: Any) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def next_answer(self) -> Answer:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@contextmanager
def answering(*answers: Answer, port: int = 0) -> Iterator[AnsweringServer]:
    """port: 0: a free one."""
    server = AnsweringServer(port, *answers)
    thread = threading.Thread(target=server.http.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()
        thread.join()
