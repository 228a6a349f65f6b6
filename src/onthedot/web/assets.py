"""The built page: its HTML, its files, and the answer where it was not built."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from html import escape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from onthedot.web.auth import TokenAuthenticator, base_path, set_cookie
from onthedot.web.context import WebContext
from onthedot.web.endpoints import require_identity
from onthedot.web.errors import ApiError, error_response
from onthedot.web.settings import User
from onthedot.web.sign_in import checked_sign_in

STATIC = Path(__file__).parent / "static"
_PAGES = re.compile(
    r"/((login|failed|schedules|workers|waiting|outbox|agents|audit|(tasks|sources|flows|batches)(/[^/]+)?)/?)?"
)
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HASHED = re.compile(r".+-[A-Z0-9]{8}\.(js|css)")
_MEDIA_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".map": "application/json",
}
_FOREVER = "public, max-age=31536000, immutable"  # of names with a hash of the content
_HTML = """<!doctype html>
<html lang="en" data-base="{base}/"{facts}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>onthedot</title>
<link rel="icon" href="{base}/static/{icon}">
<link rel="stylesheet" href="{base}/static/{style}">
<script type="module" src="{base}/static/{script}"></script>
</head>
<body><div id="app"></div><noscript>This page needs JavaScript. The HTTP API is below {base}/api/v1.</noscript></body>
</html>
"""
_PLAIN = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>onthedot: {title}</title></head>
<body><h1>{title}</h1><p>{text}</p></body></html>
"""


class Manifest(Struct, frozen=True):
    """Names of the built files."""

    script: str
    style: str
    icon: str


class PageNotFound(NamedTuple):
    """Why there is no page."""

    reason: str


class Assets:
    """The built page in a folder. It is read again while it is missing, so a build needs no restart."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._folder = folder

    def manifest(self) -> Manifest | PageNotFound:
        if "_built" in self.__dict__ and (self._folder / self._built.script).exists():
            return self._built
        self.__dict__.pop("_built", None)
        try:
            return self._built
        except FileNotFoundError:
            return PageNotFound("it was not built with this installation")
        except (OSError, msgspec.DecodeError) as error:
            return PageNotFound(f"its manifest cannot be read: {error}")

    @cached_property
    def _built(self) -> Manifest:
        return msgspec.json.decode((self._folder / "manifest.json").read_bytes(), type=Manifest)

    def html(self, base: str, status: int = 200, facts: Mapping[str, str] | None = None) -> Response:
        """facts: attributes `data-…` of the page, which it needs before its first answer of the API."""
        found = self.manifest()
        if isinstance(found, PageNotFound):
            text = (
                f"The page is not here: {escape(found.reason)}. In a checkout, build it with <code>./dev page</code>. "
                f"The HTTP API works without it: {escape(base)}/api/v1."
            )
            return HTMLResponse(_PLAIN.format(title="no page", text=text), 503)
        attributes = "".join(f' data-{name}="{escape(value)}"' for name, value in (facts or {}).items())
        return HTMLResponse(_HTML.format(base=escape(base), facts=attributes, **msgspec.structs.asdict(found)), status)

    def file(self, name: str, *, gzip: bool) -> Response | None:
        """A file of the page; None: there is none of this name."""
        path = self._folder / name
        kind = _MEDIA_TYPES.get(path.suffix)
        if kind is None or not _FILE.fullmatch(name) or not path.is_file():
            return None
        headers = {"Cache-Control": _FOREVER if _HASHED.fullmatch(name) else "no-cache", "Vary": "Accept-Encoding"}
        packed = path.with_name(f"{name}.gz")
        if gzip and packed.is_file():
            return FileResponse(packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=kind)
        return FileResponse(path, headers=headers, media_type=kind)


class StaticEndpoint:
    """``GET /static/…``, open to everybody: the same files are in the package."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method not in ("GET", "HEAD"):
            raise ApiError("method_not_allowed", f"{request.method} is not one of GET", headers={"Allow": "GET"})
        gzip = "gzip" in request.headers.get("accept-encoding", "")
        response = self._assets.file(request.path_params["name"], gzip=gzip)
        if response is None:
            raise ApiError("not_found", f"no file {request.path_params['name']!r}")
        await response(scope, receive, send)


def _is_navigation(request: Request) -> bool:
    """Whether a person sees the answer."""
    return "text/html" in request.headers.get("accept", "")


def _not_open() -> Response:
    text = (
        "This program has not connected its app to the store. Give it <code>lifespan=lifespan(app)</code>, with "
        "<code>from onthedot.integrations.fastapi import lifespan</code>, and start it again."
    )
    return HTMLResponse(_PLAIN.format(title="the app is not open", text=text), 503)


class PageEndpoint:
    """Every other path: the page, which reads the path by itself; `/?token=…` signs in."""

    def __init__(self, context: WebContext, assets: Assets) -> None:
        self._context = context
        self._assets = assets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = "/" + request.path_params["path"]
        if request.method not in ("GET", "HEAD"):
            await require_identity(self._context, request)
            raise ApiError("method_not_allowed", f"{request.method} is not one of GET", headers={"Allow": "GET"})
        token = request.query_params.get("token")
        if token is not None and self._context.authenticator.has_sign_in:
            return self._sign_in(request, token)
        base = base_path(request)
        if path == "/login":
            return self._assets.html(base) if self._context.is_open else _not_open()
        identity = await self._context.authenticator.identify(request)
        if identity is None:
            return self._sign_in_page(request)
        if not self._context.is_open:
            return _not_open()
        facts = self._facts(request, identity.user)
        response = self._assets.html(base, 200 if _PAGES.fullmatch(path) else 404, facts)
        if identity.renewed:
            set_cookie(request, response, identity.renewed)
        return response

    def _facts(self, request: Request, user: User) -> Mapping[str, str]:
        """The facts that decide head and columns of a page: nothing moves when `/status` answers."""
        context = self._context
        return {
            "app": request.query_params.get("app") or context.app.name,
            "environment": context.settings.environment,
            "user": user.name,
            "role": user.role,
            "features": " ".join(context.features),
        }

    def _sign_in_page(self, request: Request) -> Response:
        if _is_navigation(request) and self._context.authenticator.has_sign_in:
            return RedirectResponse(f"{base_path(request)}/login", 303)
        error = ApiError("unauthorized", "sign in first", headers={"WWW-Authenticate": "Bearer"})
        return error_response(error, request.scope["onthedot.request_id"])

    def _sign_in(self, request: Request, token: str) -> Response:
        try:
            user = checked_sign_in(self._context, request, token)
        except ApiError:
            if not _is_navigation(request):
                raise
            return RedirectResponse(f"{base_path(request)}/login?refused", 303)
        others = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
        path = base_path(request) + "/" + request.path_params["path"].lstrip("/\\")  # "//host" is another site
        response = RedirectResponse(f"{path}?{urlencode(others)}" if others else path, 303)
        authenticator = self._context.authenticator
        assert isinstance(authenticator, TokenAuthenticator)
        set_cookie(request, response, authenticator.new_cookie(user))
        return response
