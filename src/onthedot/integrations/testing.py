"""The page of an app in tests: a real server, a real worker and a memory store, in the process of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Generator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any, NamedTuple

from onthedot.api.app import App
from onthedot.events.settings import STORE_BUS
from onthedot.runtime.settings import version
from onthedot.web.app_site import app_site
from onthedot.web.context import AppFacts
from onthedot.web.server import address_of, listen, serving
from onthedot.web.settings import WebSettings, new_token, token_credential

__all__ = ["HttpAnswer", "TestWeb"]

_PATIENCE = 30.0  # seconds for one answer


class HttpAnswer(NamedTuple):
    """The answer to a request. status: of HTTP; data: the JSON, None without a body."""

    status: int
    data: Any


class TestWeb:
    """The page and the HTTP API of an app under test, on a free port of this machine.

    The app is on ``memory://`` meanwhile, and a worker runs its tasks and schedules in real time: open tabs are live.

    Args:
        app: The app; outside of the ``with`` block it is unchanged.

    >>> app = App("shop")
    >>> @app.task
    ... def double(number: int) -> int:
    ...     return number * 2
    >>> with TestWeb(app) as web:
    ...     handle = double.delay(21)
    ...     handle.result(timeout=30)
    ...     web.request("GET", f"/tasks/{handle.uuid}").data["result"]
    42
    42

    It needs starlette and uvicorn: ``pip install 'onthedot[web]'``.
    """

    __test__ = False  # pytest: not a class of tests

    def __init__(self, app: App[Any]) -> None:
        self.app: App[Any] = app
        self.address: str = ""
        """Of the page, as in ``http://127.0.0.1:41201``; inside of the ``with`` block."""
        self.token: str = new_token()
        """Of an operator."""
        self._stack = ExitStack()

    def __enter__(self) -> TestWeb:
        runtime = self.app.runtime
        events = replace(runtime.config.events, bus=STORE_BUS, outbox=None)
        config = replace(runtime.config, url="memory://", keep_pending_on_stop=True, events=events)
        with ExitStack() as stack:
            stack.enter_context(runtime.override(config))
            self.app.start(auto=True)
            stack.callback(self.app.shutdown, 0)
            self.address = stack.enter_context(self._served())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def __repr__(self) -> str:
        return f"<TestWeb {self.app.name} at {self.address}>"

    @property
    def url(self) -> str:
        """The address that signs a browser in."""
        return f"{self.address}/?token={self.token}"

    @property
    def headers(self) -> dict[str, str]:
        """The header that signs a request of any HTTP client in."""
        return {"Authorization": f"Bearer {self.token}"}

    def request(self, method: str, path: str, body: object = None) -> HttpAnswer:
        """Sends a request to the HTTP API as the operator. It blocks: async tests use a client of their own.

        Args:
            method: Such as ``"GET"``.
            path: Below ``/api/v1``, with the query: ``"/tasks?q=state:failed"``.
            body: Sent as JSON; None: nothing.
        """
        connection = HTTPConnection(self.address.removeprefix("http://"), timeout=_PATIENCE)
        headers = dict(self.headers)
        text: str | None = None
        if body is not None:
            text = json.dumps(body)
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, f"/api/v1{path}", text, headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        return HttpAnswer(response.status, json.loads(content) if content else None)

    @contextmanager
    def _served(self) -> Generator[str, None, None]:
        """Serves on the event loop of the worker, which is connected to the store. Yields the address."""
        loop = self.app.runtime.host.loop
        assert loop is not None

        def run(work: Coroutine[Any, Any, object]) -> None:
            asyncio.run_coroutine_threadsafe(work, loop).result()

        with listen("127.0.0.1", 0) as listener:
            settings = WebSettings(
                port=listener.getsockname()[1],
                credentials=(token_credential("operator", "operator", self.token),),
                environment="test",
            )
            site = app_site(self.app, settings, AppFacts(self.app.name, "memory", version()))
            server = AsyncExitStack()
            run(server.enter_async_context(serving(site, listener)))
            try:
                yield f"http://{address_of(listener)}"
            finally:
                run(server.aclose())
