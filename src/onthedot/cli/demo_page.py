"""The page of the demo, served by its own process while the tour runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from onthedot.api.app import App
from onthedot.errors import DeclarationError
from onthedot.runtime.settings import version
from onthedot.web.app_site import app_site
from onthedot.web.context import AppFacts
from onthedot.web.server import address_of, end_streams, listen, serving
from onthedot.web.settings import DEFAULT_PORT, WebSettings, new_token, token_credential

_PORTS = 20  # that are tried


class DemoPage:
    """An ASGI app that knows whether anybody has opened it."""

    def __init__(self, site: ASGIApp, address: str) -> None:
        self._site = site
        self.address = address
        self.is_open: bool = False

    def end_streams(self) -> None:
        end_streams(self._site)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith("/api/"):
            self.is_open = True
        await self._site(scope, receive, send)


@asynccontextmanager
async def demo_page(app: App[Any]) -> AsyncGenerator[DemoPage | None, None]:
    """Serve the page of an app that is connected. None: no port is free."""
    token = new_token()  # not that of the folder: nothing is left behind
    try:
        listener = listen("127.0.0.1", DEFAULT_PORT, _PORTS)
    except DeclarationError:
        yield None
        return
    credentials = (token_credential("operator", "operator", token),)
    settings = WebSettings(port=listener.getsockname()[1], credentials=credentials, environment="demo")
    site = app_site(app, settings, AppFacts(app.name, "sqlite", version()))
    page = DemoPage(site, f"http://{address_of(listener)}/?token={token}")
    with listener:
        async with serving(page, listener):
            yield page
