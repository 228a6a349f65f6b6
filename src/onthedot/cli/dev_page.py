"""The page of ``onthedot dev``: the process that watches the files serves it, so that tabs survive reloads.

A memory store is seen by the worker alone, which then serves the page itself, on the same socket.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from onthedot.api.app import App
from onthedot.events import Events
from onthedot.operations.humanize import suffix
from onthedot.runtime.settings import version
from onthedot.supervisor.fleet_page import StoreSpec
from onthedot.web.app_site import app_site
from onthedot.web.context import AppFacts
from onthedot.web.saved_token import credentials_of
from onthedot.web.server import address_of, end_streams, serving
from onthedot.web.settings import WebSettings

_HOLD = 10.0  # seconds that a request waits for the first worker
_STARTING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="1"><title>onthedot</title></head>
<body><h1>No worker yet</h1>
<p>The worker has not started; the terminal shows why. This page tries again every second.</p></body></html>
"""
_NO_CACHE = {"Cache-Control": "no-store", "Content-Security-Policy": "default-src 'none'"}


class DevPage:
    """An ASGI app that holds requests until the store of the worker is known."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        settings, query = _settings(listener)
        self.settings: WebSettings = settings
        self._query = query
        self._stores: StoreSpec | None = None
        self._site: ASGIApp | None = None
        self._store = AsyncExitStack()  # the connection to it
        self._server = AsyncExitStack()
        self._is_serving = False
        self._is_decided = asyncio.Event()

    @property
    def address(self) -> str:
        """With the token, unless it was set from outside."""
        return f"http://{address_of(self.listener)}/{self._query}"

    async def __aenter__(self) -> DevPage:
        await self._serve()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.answer_held()
        await self._server.aclose()
        await self._store.aclose()

    async def show(self, stores: StoreSpec) -> None:
        """A worker is ready: show its store. Open tabs notice nothing if that is the same as before."""
        if stores == self._stores:
            return
        self._stores = None  # until the end: a save may cancel this at any await
        self.end_streams()
        self._site = None
        if stores.url.startswith("memory:"):
            self.answer_held()
            self._is_serving = False
            await self._server.aclose()
            await self._store.aclose()
            self._stores = stores
            return
        await self._serve()
        await self._store.aclose()
        app: App[Any] = App(stores.app, store=stores.url, events=Events(outbox=stores.outbox or None))
        await self._store.enter_async_context(app)
        self._site = app_site(app, self.settings, AppFacts(app.name, stores.url.partition(":")[0], version()))
        self._stores = stores
        self.answer_held()

    def answer_held(self) -> None:
        """Answer the requests that wait, and from now on at once: the store is known, or the worker does not start."""
        self._is_decided.set()

    def end_streams(self) -> None:
        end_streams(self._site)

    async def _serve(self) -> None:
        if not self._is_serving:
            await self._server.enter_async_context(serving(self, self.listener.dup()))
            self._is_serving = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._site is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_decided.wait(), _HOLD)
        site = self._site or _starting(scope)
        await site(scope, receive, send)


def _starting(scope: Scope) -> Response:
    if scope["path"].startswith("/api/"):
        error = {"code": "not_open", "message": "the worker has not started; the terminal shows why"}
        return JSONResponse({"error": error}, 503, {**_NO_CACHE, "Retry-After": "1"})
    return HTMLResponse(_STARTING, 503, {**_NO_CACHE, "Retry-After": "1"})


def _settings(listener: socket.socket) -> tuple[WebSettings, str]:
    """Settings, and the query of the address. The worker finds the same ones: it runs in the same folder."""
    host, port = listener.getsockname()[:2]
    credentials, token = credentials_of(Path.cwd(), os.environ)
    settings = WebSettings(host=host, port=port, credentials=credentials, environment="dev")
    return settings, suffix("?token=", token.text)


@asynccontextmanager
async def page_in_worker(app: App[Any], fd: int) -> AsyncGenerator[None, None]:
    """Serve the page of an app whose store no other process sees, on the socket that `dev` listens on."""
    listener = socket.socket(fileno=fd)
    settings, _ = _settings(listener)
    facts = AppFacts(app.name, app.runtime.url.partition(":")[0], version())
    async with serving(app_site(app, settings, facts), listener):
        yield
