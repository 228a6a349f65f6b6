"""The way of a request: who calls, may they, what do they ask, the handler, the answer."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from onthedot.operations import Operations
from onthedot.operations.audit import Actor
from onthedot.web.auth import Identity, restrict_role, set_cookie
from onthedot.web.context import WebContext
from onthedot.web.errors import ApiError
from onthedot.web.security import MAX_BODY, check_origin, receive_body
from onthedot.web.settings import User

Q = TypeVar("Q", bound="Query")
Q_co = TypeVar("Q_co", bound="Query", covariant=True)
B_co = TypeVar("B_co", covariant=True)
Access: TypeAlias = Literal["open", "viewer", "operator"]
_log = logging.getLogger("onthedot.web")
_PATH_OF_ERROR = re.compile(r" - at `\$\.?([^`]*)`$")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `([^`]*)`")


class Query(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of a route, beside `app`. A name that is not known is an error: a typo would match everything.

    It has no fields, so that a query can also derive from a struct that is part of bodies.
    """


class NoBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A change without parameters: an empty body, or ``{}``."""


@dataclass(frozen=True, slots=True)
class WebCall(Generic[Q_co, B_co]):
    """A request as its handler sees it. path: the parts of the path by name."""

    context: WebContext
    user: User
    path: Mapping[str, str]
    query: Q_co
    body: B_co
    request: Request
    via: Literal["page", "api"] = "api"

    @property
    def operations(self) -> Operations:
        """Those of the app, in the name of the caller: changes are in the audit log, with the reason of the body."""
        return self.context.operations.acting_as(self.actor, getattr(self.body, "reason", ""))

    @property
    def actor(self) -> Actor:
        return Actor(self.user.name, self.user.role, self.via)


class Answer(Struct, frozen=True):
    """An answer with another status than the one of its route, or with headers."""

    value: object
    status: int = 200
    headers: Mapping[str, str] = {}


Handler: TypeAlias = Callable[[WebCall[Any, Any]], Awaitable[object]]


class Route(Struct, frozen=True, kw_only=True):
    """One method of one path. Server, OpenAPI, documentation and the test of credentials derive from it.

    path: below /api/v1, unless `prefix` is ""; status: of a success; answer: None: no JSON
    other_answers: of successes with another status
    errors: codes beyond those that every route has; has_etag: answers 304 to an If-None-Match
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handler: Handler
    access: Access
    summary: str
    answer: Any = None
    other_answers: Mapping[int, Any] = {}
    query: type[Query] = Query
    body: Any = None
    status: int = 200
    errors: Sequence[str] = ()
    prefix: str = "/api/v1"
    max_body: int = MAX_BODY
    has_etag: bool = False
    media_type: str = "application/json"

    @property
    def full_path(self) -> str:
        return self.prefix + self.path


class PathEndpoint:
    """All routes of one path, as an ASGI app."""

    def __init__(self, context: WebContext, routes: Sequence[Route]) -> None:
        self._context = context
        self._routes: dict[str, Route] = {route.method: route for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        route = self._routes.get(method)
        if route is not None and route.access == "open":
            return await self._handle(route, request, User("", "viewer"), "api")
        identity = await require_identity(self._context, request)
        if route is None:
            allowed = ", ".join(sorted(self._routes))
            raise ApiError(
                "method_not_allowed", f"{request.method} is not one of {allowed}", headers={"Allow": allowed}
            )
        user = restrict_role(identity.user, self._context.settings)
        if route.access == "operator" and user.role != "operator":
            raise ApiError("forbidden", f"{user.name} is a viewer, and this needs an operator")
        check_origin(request, identity)
        via: Literal["page", "api"] = "api" if identity.by == "bearer" else "page"
        response = await self._handle(route, request, user, via)
        if identity.renewed and "set-cookie" not in response.headers:
            set_cookie(request, response, identity.renewed)
        return response

    async def _handle(self, route: Route, request: Request, user: User, via: Literal["page", "api"]) -> Response:
        query = decode_query(request, route.query)
        context = self._context
        if route.access != "open":  # these answer for the process, and do not reveal the name of the app
            context = await context.of_app(request.query_params.get("app", ""))
        body: object = None
        if route.body is not None:
            body = await decode_request(request, route)
        if route.access == "operator":
            wait = self._context.changes.spend(user.name)
            if wait:
                raise ApiError("too_many", "more than 20 changes per second", retry_after=wait)
        call = WebCall(context, user, request.path_params, query, body, request, via)
        if route.method != "GET":
            found = await route.handler(call)
        else:
            found = await until_disconnect(request, route.handler(call))
        if route.access == "operator":
            call.operations.feed.recheck()  # open pages see the change at once
        return encode_answer(found, route, request)


async def require_identity(context: WebContext, request: Request) -> Identity:
    identity = await context.authenticator.identify(request)
    if identity is None:
        raise ApiError(
            "unauthorized",
            "sign in, or send the header Authorization: Bearer TOKEN",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return identity


async def until_disconnect(request: Request, work: Awaitable[object]) -> object:
    """Await a read; cancel it if the client goes away."""
    reading = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait([reading, gone], return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            raise ClientDisconnect
        return reading.result()
    finally:
        for task in (reading, gone):
            task.cancel()
        await asyncio.wait([reading, gone])


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def decode_query(request: Request, kind: type[Q]) -> Q:
    """The query string as a Struct. ApiError: a name that is not known, given twice, or a value that does not fit."""
    lists = {each.name for each in msgspec.structs.fields(kind) if "list" in str(each.type)}
    values: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in lists:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise ApiError("bad_request", f"{name} is given twice", field=name)
        else:
            values[name] = value
    values.pop("app", None)
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise validation_error("bad_request", error) from None


async def decode_request(request: Request, route: Route) -> object:
    if route.body is NoBody and request.headers.get("content-length", "0") == "0":
        kind = request.headers.get("content-type")
        if kind is None or kind.partition(";")[0].strip().lower() == "application/json":
            return NoBody()
    data = await receive_body(request, route.max_body)
    if not data and route.body is NoBody:
        return NoBody()
    try:
        return msgspec.json.decode(data, type=route.body)
    except msgspec.ValidationError as error:
        raise validation_error("invalid", error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError("bad_request", f"the body is no JSON: {error}") from None


def validation_error(code: str, error: msgspec.ValidationError) -> ApiError:
    """The answer to a query or body that does not fit, with the name of the field."""
    text = str(error)
    if unknown := _UNKNOWN_FIELD.search(text):
        return ApiError(code, f"there is no {unknown[1]!r} here", field=unknown[1])
    if found := _PATH_OF_ERROR.search(text):
        return ApiError(code, text[: found.start()], field=found[1])
    return ApiError(code, text)


def encode_answer(found: object, route: Route, request: Request) -> Response:
    if isinstance(found, Response):
        return found
    answer = found if isinstance(found, Answer) else Answer(found, route.status)
    if answer.status == 204:
        return Response(status_code=204, headers=dict(answer.headers))
    body = msgspec.json.encode(answer.value)
    response = Response(body, answer.status, dict(answer.headers), "application/json")
    if route.has_etag:
        tag = f'W/"{blake2b(body, digest_size=12).hexdigest()}"'
        response.headers["ETag"] = tag
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers={"ETag": tag})
    return response
