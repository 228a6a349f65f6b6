"""The page of an app inside another ASGI program, below any path."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from onthedot.api.app import App
from onthedot.model.redaction import RedactFunction, Redaction
from onthedot.runtime.settings import version
from onthedot.web.app_site import app_site
from onthedot.web.auth import FunctionAuthenticator, UserFunction
from onthedot.web.context import AppFacts
from onthedot.web.saved_token import saved_token
from onthedot.web.settings import WebSettings, credentials_from, token_credential

_log = logging.getLogger("onthedot.web")


def dashboard(
    app: App[Any],
    *,
    user: UserFunction | None = None,
    redact: RedactFunction | None = None,
    read_only: bool = False,
    prefix: str = "",
    public_url: str = "",
    environment: str = "",
    trace_url: str = "",
) -> ASGIApp:
    """Returns the page and the HTTP API of an app, to be mounted: ``api.mount("/ops/tasks", dashboard(app))``.

    It shows the store that the app is connected to in this process: the program has ``lifespan=lifespan(app)``.
    Without `user`, people sign in with a token: ``$ONTHEDOT_WEB_TOKEN``, ``…_VIEWER_TOKEN`` or ``…_USERS``, else one
    that is made once per folder and logged with the address of the page.

    Args:
        app: The app that is shown.
        user: Your own sign-in. It gets each request and returns a `User`, or None for somebody who may see nothing; it
            may be async, and raise an ``HTTPException``. ``user=anyone`` opens the page to everybody, as viewers.
        redact: Hides more values: it gets the path of a value, such as ``order.iban``, and the value, and returns what
            is shown instead.
        read_only: Nobody changes anything: all users are viewers.
        prefix: The path below which it is mounted, for frameworks that do not pass it on as ``root_path``. FastAPI and
            Starlette do.
        public_url: The address behind a proxy, such as ``https://ops.example.com/tasks``. Other hosts are refused then.
        environment: A name that the page shows, such as ``production``.
        trace_url: An address with ``{trace_id}``, to which the page links traces.

    >>> from starlette.applications import Starlette
    >>> from starlette.routing import Mount
    >>> from onthedot import App
    >>> from onthedot.integrations.fastapi import User, lifespan
    >>> tasks = App("shop", store="memory://")
    >>> async def current_admin(request):
    ...     return User("ana", "operator") if request.headers.get("x-admin") == "yes" else None
    >>> api = Starlette(routes=[Mount("/ops/tasks", dashboard(tasks, user=current_admin))], lifespan=lifespan(tasks))
    """
    settings = WebSettings(
        host="",  # the host program decides which addresses it serves
        port=0,
        credentials=credentials_from(os.environ),
        read_only=read_only,
        prefix=prefix,
        public_url=public_url,
        environment=environment,
        trace_url=trace_url,
    )
    redaction = None if redact is None else Redaction(os.environ.get("ONTHEDOT_REDACT", ""), redact)
    facts = AppFacts(app.name, app.runtime.url.partition(":")[0], version())
    if user is not None:
        return app_site(app, settings, facts, authenticator=FunctionAuthenticator(user), redaction=redaction)
    if settings.credentials:
        return app_site(app, settings, facts, redaction=redaction)
    token = saved_token(Path.cwd(), os.environ)
    settings = replace(settings, credentials=(token_credential("operator", "operator", token),))
    return _AnnouncedPage(app_site(app, settings, facts, redaction=redaction), settings, token)


class _AnnouncedPage:
    """Logs how to sign in, once, at the first request: only then the address is known."""

    def __init__(self, site: ASGIApp, settings: WebSettings, token: str) -> None:
        self._site = site
        self._settings = settings
        self._token = token
        self._is_announced = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_announced:
            self._is_announced = True
            address = self._address(scope)
            _log.warning("[page] without ONTHEDOT_WEB_TOKEN or user=, sign in at %s/?token=%s", address, self._token)
        await self._site(scope, receive, send)

    def _address(self, scope: Scope) -> str:
        """Nothing that a client has sent: the token must not be logged as a link to another host."""
        if self._settings.public_url:
            return self._settings.public_url.rstrip("/")
        path = str(scope.get("root_path") or self._settings.base_path).rstrip("/")
        host, port = scope.get("server") or ("localhost", None)
        if ":" in host:
            host = f"[{host}]"
        if port is not None:
            host = f"{host}:{port}"
        return f"{scope['scheme']}://{host}{path}"
