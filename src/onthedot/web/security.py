"""Checks before a request is answered: Host, Origin, sizes, rates; and headers of every answer."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import Message, Send

from onthedot.web.auth import Identity, is_https
from onthedot.web.errors import ApiError
from onthedot.web.settings import WebSettings, is_loopback

MAX_HEADERS = 16 * 1024
MAX_BODY = 64 * 1024
MAX_DEPTH = 64
MAX_QUERY = 8 * 1024
CHANGES_PER_SECOND = 20.0
CHANGE_BURST = 40.0
SIGN_INS_PER_MINUTE = 5.0
_MAX_KEYS = 10_000  # identities or addresses that a rate remembers
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


def check_host(request: Request, settings: WebSettings) -> None:
    """Refuse a Host that is not ours: a page of another site may have pointed its name at this address.

    A mounted app leaves this to its host program, unless `public_url` names the address.
    """
    if settings.host == "" and not settings.public_url:
        return
    try:
        host = urlsplit(f"//{request.headers.get('host', '')}")
        name = host.hostname or ""
        _ = host.port  # ValueError: no number
    except ValueError:
        name = ""
    allowed = {settings.host.lower(), urlsplit(settings.public_url).hostname}
    if is_loopback(name) or name.endswith(".localhost") or (name and name in allowed):
        return
    if settings.host in ("0.0.0.0", "::") and not settings.public_url and _is_bound(request, name):  # noqa: S104
        return
    raise ApiError("wrong_host", f"this server is not {name!r}; name the address by --public-url")


def _is_bound(request: Request, name: str) -> bool:
    """Whether this is the address of the machine that the connection came to."""
    address, _ = request.scope.get("server") or ("", None)
    return name == address


def check_sizes(request: Request) -> None:
    size = sum(len(name) + len(value) for name, value in request.scope["headers"])
    if size > MAX_HEADERS:
        raise ApiError("too_large", f"the headers take {size:,} bytes, the limit is {MAX_HEADERS:,}")
    if len(request.scope.get("query_string", b"")) > MAX_QUERY:
        raise ApiError("too_large", f"the query is longer than {MAX_QUERY:,} bytes")


def check_origin(request: Request, identity: Identity) -> None:
    """Refuse a change that another site may have sent through the browser of a user who is signed in."""
    if request.method in _SAFE_METHODS or identity.by == "bearer":
        return
    if identity.by == "host" and request.headers.get("authorization", "").lower().startswith("bearer "):
        return  # no browser adds it by itself
    if request.headers.get("x-onthedot") != "1":
        raise ApiError("forbidden", "a change with a cookie needs the header X-Onthedot: 1")
    if not is_same_origin(request):
        raise ApiError("forbidden", "a change with a cookie must come from the page itself: Origin differs")


def is_same_origin(request: Request) -> bool:
    origin = request.headers.get("origin")
    if origin is None:
        return request.headers.get("sec-fetch-site") == "same-origin"
    return origin.lower() == public_origin(request)


def public_origin(request: Request) -> str:
    """The scheme and host by which browsers know this server."""
    settings: WebSettings = request.scope["onthedot.settings"]
    if settings.public_url:
        parts = urlsplit(settings.public_url)
        return f"{parts.scheme}://{parts.netloc}".lower()
    return f"{request.scope['scheme']}://{request.headers.get('host', '')}".lower()


async def receive_body(request: Request, limit: int) -> bytes:
    """The body of a change. ApiError: it is too large, too deep, or no JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError("unsupported_type", "the body must be JSON: Content-Type: application/json")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise ApiError("too_large", f"the body takes {int(length):,} bytes, the limit is {limit:,}")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise ApiError("too_large", f"the body takes more than {limit:,} bytes")
        parts.append(part)
    body = b"".join(parts)
    if json_depth(body) > MAX_DEPTH:
        raise ApiError("invalid", f"the body is nested deeper than {MAX_DEPTH} levels")
    return body


def json_depth(body: bytes) -> int:
    """
    >>> json_depth(b'{"a": [1, "[["]}')
    2
    """
    depth = 0
    deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


class RateLimit:
    """A token bucket per key. now: seconds, by a clock that only advances."""

    def __init__(self, per_second: float, burst: float, now: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = burst
        self._now = now
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # level, and when it was so

    def has(self, key: str) -> bool:
        """Whether one more is allowed."""
        return self._level(key) >= 1

    def spend(self, key: str) -> float:
        """Take one. Return 0, or the seconds until one is available."""
        level = self._level(key)
        if level < 1:
            return (1 - level) / self._per_second
        self._levels[key] = (level - 1, self._now())
        self._levels.move_to_end(key)
        if len(self._levels) > _MAX_KEYS:
            self._levels.popitem(last=False)
        return 0

    def _level(self, key: str) -> float:
        level, at = self._levels.get(key, (self._burst, 0.0))
        return min(self._burst, level + (self._now() - at) * self._per_second)


def with_security_headers(request: Request, send: Send, request_id: str) -> Send:
    """A `send` that adds the headers of every answer."""

    async def send_message(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
            headers["X-Request-Id"] = request_id
            if is_https(request):
                headers["Strict-Transport-Security"] = "max-age=31536000"
        await send(message)

    return send_message
