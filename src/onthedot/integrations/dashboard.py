"""The page of an app inside another ASGI program, below any path."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
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
from onthedot.web.saved_token import SavedToken, credentials_of
from onthedot.web.settings import WebSettings, credentials_from

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
    that is made once per folder, at the first request. Its file is logged with the address of the page.

    Without `public_url` it answers to any name: which hosts are served is left to your program. A page of another site
    can then point its own name at this address (DNS rebinding); the sign-in is what keeps it out. Name `public_url`, or
    check hosts in a middleware such as Starlette's ``TrustedHostMiddleware``.

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
    return _PageWithToken(lambda found: app_site(app, found, facts, redaction=redaction), settings)


class _PageWithToken:
    """The page with the token of the folder, which is made at the first request: an import writes no file."""

    def __init__(self, make: Callable[[WebSettings], ASGIApp], settings: WebSettings) -> None:
        self._make = make
        self._settings = settings
        self._folder = Path.cwd()
        self._site: ASGIApp | None = None
        self._token: SavedToken | None = None  # until it is announced

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._site is None:
            credentials, self._token = credentials_of(self._folder, os.environ)
            self._site = self._make(replace(self._settings, credentials=credentials))
        if self._token is not None and scope["type"] == "http":  # only then the address is known
            self._announce(self._token, self._address(scope))
            self._token = None
        await self._site(scope, receive, send)

    def _announce(self, token: SavedToken, address: str) -> None:
        """Where the token is, not the token: others read the log."""
        if token.file is None:
            _log.warning("[page] nobody can sign in: no token can be saved; set ONTHEDOT_WEB_TOKEN or user=")
        else:
            _log.warning(
                "[page] without ONTHEDOT_WEB_TOKEN or user=, sign in at %s/ with the token in %s", address, token.file
            )

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
