"""Which errors of an agent are retried, wait, or are permanent; with real clients and a real server."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.error import HTTPError

import pytest

from onthedot import Cancel, Reject, Retry, Snooze
from onthedot.events.classification import classify


class _Handler(BaseHTTPRequestHandler):
    """Answers `/status/header/value` with this status and this header."""

    def do_GET(self) -> None:
        _, status, name, value = self.path.split("?")[0].split("/")[:4]
        self.send_response(int(status))
        if name != "none":
            self.send_header(name, value.replace("_", " "))
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - as the base class calls it


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as http:
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def _with_httpx(url: str) -> None:
    httpx = pytest.importorskip("httpx")
    with httpx.Client(trust_env=False) as client:
        client.get(url).raise_for_status()


def _with_aiohttp(url: str) -> None:
    aiohttp = pytest.importorskip("aiohttp")

    async def get() -> None:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            response.raise_for_status()

    asyncio.run(get())


def _with_openai(url: str) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=url, api_key="test", max_retries=0) as client:
        client.get("", cast_to=object)


def _with_urllib(url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(url)


CLIENTS: dict[str, Callable[[str], None]] = {
    "httpx": _with_httpx,
    "aiohttp": _with_aiohttp,
    "openai": _with_openai,
    "urllib": _with_urllib,
}


@pytest.fixture(params=list(CLIENTS))
def ask(request: pytest.FixtureRequest, server: str) -> Callable[[str], Any]:
    """Asks the server with a client, and classifies the error of that."""

    def classified(path: str) -> Any:
        try:
            CLIENTS[request.param](f"{server}/{path}")
        except Exception as error:
            answer = classify(error)
            if isinstance(error, HTTPError):
                error.close()  # it holds the response
            return answer
        raise AssertionError("no error")

    return classified


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_other_4xx_is_permanent(ask: Callable[[str], Any], status: int) -> None:
    assert ask(f"{status}/none/0/") == "permanent"
    assert ask(f"{status}/Retry-After/1/") == "permanent"


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_status_without_retry_after_is_retriable(ask: Callable[[str], Any], status: int) -> None:
    assert ask(f"{status}/none/0/") == "retriable"
    assert ask(f"{status}/Retry-After/soon/") == "retriable"


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "least"),
    [
        ("Retry-After/20", 20),
        ("retry-after/0", 1),
        ("Retry-After/9999", 300),
        ("Retry-After/1.5", 1.5),
        ("retry-after-ms/2500", 2.5),
    ],
)
def test_throttled_call_waits_as_long_as_the_server_asks(
    ask: Callable[[str], Any], status: int, header: str, least: float
) -> None:
    answer = ask(f"{status}/{header}/")
    assert isinstance(answer, Snooze)
    assert isinstance(answer.after, float)
    assert least <= answer.after <= least * 1.1


def test_retry_after_may_be_a_date(ask: Callable[[str], Any]) -> None:
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True).replace(" ", "_")
    answer = ask(f"429/Retry-After/{moment}/")
    assert isinstance(answer, Snooze)
    assert isinstance(answer.after, float)
    assert 50 <= answer.after <= 66


def test_refused_connection_is_retriable(unused_port: int) -> None:
    for client in CLIENTS.values():
        with pytest.raises(Exception) as raised:
            client(f"http://127.0.0.1:{unused_port}/")
        assert classify(raised.value) == "retriable"


@pytest.fixture
def unused_port() -> int:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as http:
        return http.server_port


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionError(), OSError(5, "no"), ValueError(), Exception()])
def test_other_errors_are_retriable(error: Exception) -> None:
    assert classify(error) == "retriable"


def test_controls_are_applied_as_raised() -> None:
    retry = Retry(after=3)
    snooze = Snooze(3)
    assert classify(retry) is retry
    assert classify(snooze) is snooze
    assert classify(Reject("no")) == "permanent"
    assert classify(Cancel("no")) == "retriable"


class _Hostile(Exception):
    @property
    def response(self) -> object:
        raise RuntimeError("no response")

    @property
    def headers(self) -> object:
        raise RuntimeError("no headers")

    status_code = 429


@pytest.mark.parametrize(
    "attributes",
    [
        {"status": True},
        {"status_code": "404"},
        {"code": 404},
        {"status": 70},
        {"response": {"status": 404}},
        {"status": 429, "headers": ["retry-after"]},
        {"status": 429, "headers": {"retry-after": "-1"}},
        {"status": 429, "headers": {"retry-after": "inf"}},
        {"status": 429, "headers": {"retry-after": "nan"}},
        {"status": 429, "headers": None},
    ],
)
def test_attributes_that_mean_something_else_are_ignored(attributes: dict[str, object]) -> None:
    error = Exception()
    vars(error).update(attributes)
    assert classify(error) == "retriable"


def test_error_that_cannot_be_asked_is_retriable() -> None:
    assert classify(_Hostile()) == "retriable"
