"""The HTTP API of an app on a real server, with clients of every role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from onthedot import App
from onthedot.clock.manual import ManualClock
from onthedot.web.app_site import app_site
from onthedot.web.auth import TokenAuthenticator
from onthedot.web.context import AppFacts
from onthedot.web.settings import User, WebSettings, token_credential
from tests.support.web_client import WebClient
from tests.support.web_server import serving

OPERATOR_TOKEN = "operator-token-0123456789"
VIEWER_TOKEN = "viewer-token-0123456789"
CREDENTIALS = (
    token_credential("ana", "operator", OPERATOR_TOKEN),
    token_credential("ben", "viewer", VIEWER_TOKEN),
)


class WebSite:
    """clock: of cookies and of rates, and not of the app"""

    def __init__(self, app: App[Any], port: int, clock: ManualClock) -> None:
        self.app = app
        self.port = port
        self.clock = clock
        self.authenticator = TokenAuthenticator(CREDENTIALS, clock)
        self.nobody = WebClient(port, {})
        self.operator = WebClient(port, {"Authorization": f"Bearer {OPERATOR_TOKEN}"})
        self.viewer = WebClient(port, {"Authorization": f"Bearer {VIEWER_TOKEN}"})

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def cookie_name(self) -> str:
        return f"onthedot_{self.port}"

    def cookie(self, user: str = "ana") -> str:
        role = "operator" if user == "ana" else "viewer"
        return f"{self.cookie_name}={self.authenticator.new_cookie(User(user, role))}"

    def browser(self, user: str = "ana") -> WebClient:
        """As the page sends its requests."""
        headers = {"Cookie": self.cookie(user), "X-Onthedot": "1", "Origin": self.address}
        return WebClient(self.port, headers)


@asynccontextmanager
async def web_site(app: App[Any], **settings: Any) -> AsyncIterator[WebSite]:
    """app: it is connected already."""
    clock = ManualClock()
    given: Mapping[str, Any] = {"credentials": CREDENTIALS, **settings}
    api = app_site(app, WebSettings(**given), AppFacts(app.name, "memory", "1.0"), clock=clock)
    async with serving(api, http="h11", lifespan="off", root_path="") as server:
        yield WebSite(app, server.port, clock)
