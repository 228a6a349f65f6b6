"""The ASGI app: checks of every request, then the route, the page or a file; errors as JSON."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onthedot.clock.protocol import Clock
from onthedot.clock.system import SystemClock
from onthedot.errors import OnTheDotError
from onthedot.model.redaction import Redaction
from onthedot.operations import Operations
from onthedot.web.assets import Assets, PageEndpoint, StaticEndpoint
from onthedot.web.auth import Authenticator, TokenAuthenticator
from onthedot.web.context import AddTask, AppFacts, MakeTask, OpenDeadLetters, OtherApps, WebContext
from onthedot.web.endpoints import PathEndpoint, Route, require_identity
from onthedot.web.errors import ApiError, as_api_error, error_response
from onthedot.web.routes import ROUTES
from onthedot.web.security import check_host, check_sizes, with_security_headers
from onthedot.web.settings import WebSettings

_log = logging.getLogger("onthedot.web")
_access_log = logging.getLogger("onthedot.web.access")


def web_app(
    operations: Operations | Callable[[], Operations | None],
    settings: WebSettings,
    *,
    app: AppFacts | None = None,
    authenticator: Authenticator | None = None,
    clock: Clock | None = None,
    redaction: Redaction | None = None,
    add_task: AddTask | None = None,
    dead_letters: OpenDeadLetters | None = None,
    make_task: MakeTask | None = None,
    others: OtherApps | None = None,
    assets: Assets | None = None,
) -> ASGIApp:
    """Return the HTTP API and the page as an ASGI app.

    operations: of the app that is shown, or a function that returns them; None from it: the app is not open
    settings: address, credentials and public address
    app: name, store and version that the page shows
    authenticator: finds out who calls; by default the tokens of the settings
    redaction: the rules that hide secrets
    add_task: adds a task; None: this server adds none
    dead_letters: opens the dead letters on the bus of the app; None: this server reads no bus
    make_task: makes the task of a schedule; None: this server creates none
    others: more apps of the store, which `?app=` names; None: this one only
    """
    clock = clock or SystemClock()

    def current() -> Operations | None:
        return operations if isinstance(operations, Operations) else operations()

    if authenticator is None:
        authenticator = TokenAuthenticator(settings.credentials, clock)
    facts = app or AppFacts("")
    context = WebContext(
        current, settings, authenticator, clock, facts, redaction, add_task, dead_letters, make_task, others
    )
    return WebApplication(context, assets or Assets())


class WebApplication:
    """Every request passes here."""

    def __init__(self, context: WebContext, assets: Assets) -> None:
        self._context = context
        # No route matches a path with a newline.
        self._router = Router([*_routes(context, assets)], redirect_slashes=False, default=_UnknownPath(context))

    def end_streams(self) -> None:
        """The server stops: open streams would delay it."""
        self._context.streams.end_all()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _run_lifespan(receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        scope = self._own_scope(scope)
        request = Request(scope, receive)
        sender = with_security_headers(request, send, scope["onthedot.request_id"])
        has_begun = False

        async def noting_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            if message["type"] == "http.response.start" and self._context.settings.access_log:
                _access_log.info("%s %s %d", request.method, scope["path"], message["status"])
            await sender(message)

        response = await self._handle(request, scope, receive, noting_send)
        if response is not None and not has_begun:
            await response(scope, receive, noting_send)

    def _own_scope(self, scope: Scope) -> Scope:
        """A proxy may pass the prefix on or strip it: both are known as the root path. Litestar adds a slash."""
        own = dict(scope)
        own["onthedot.settings"] = self._context.settings
        own["onthedot.request_id"] = secrets.token_hex(6)
        prefix = self._context.settings.base_path
        if prefix and not scope.get("root_path"):
            own["root_path"] = prefix
            if not (scope["path"] + "/").startswith(prefix + "/"):
                own["path"] = prefix + scope["path"]
        own["path"] = own["path"].rstrip("/")
        if own["path"] == own.get("root_path", "").rstrip("/"):
            own["path"] += "/"
        return own

    async def _handle(self, request: Request, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Answer, or return the answer to an error."""
        request_id: str = scope["onthedot.request_id"]
        try:
            check_host(request, self._context.settings)
            check_sizes(request)
            await self._router(scope, receive, send)
        except ApiError as error:
            return error_response(error, request_id)
        except OnTheDotError as error:
            return error_response(as_api_error(error), request_id)
        except HTTPException as error:  # of the host program, whose function finds out who calls
            return _refusal(error, request_id)
        except ClientDisconnect:
            return None
        except Exception:  # noqa: BLE001 - whatever it is, the client gets an answer, and the log has it
            _log.exception(
                "[request] %s %s failed, request %s",
                request.method,
                scope["path"],
                request_id,
                extra={"request_id": request_id},
            )
            return error_response(ApiError("internal", "an error of this server; its log has it"), request_id)
        return None


def _refusal(error: HTTPException, request_id: str) -> Response:
    """With the status of the host program, which may also send a browser to its own sign-in."""
    code = "forbidden" if error.status_code == 403 else "unauthorized"
    response = error_response(ApiError(code, error.detail, headers=error.headers), request_id)
    response.status_code = error.status_code
    return response


async def _run_lifespan(receive: Receive, send: Send) -> None:
    """Nothing begins or ends with the server: the store is opened by the caller of `web_app`."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


class _UnknownPath:
    """Below /api: without credentials nobody learns which paths there are."""

    def __init__(self, context: WebContext) -> None:
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        request = Request(scope, receive)
        await require_identity(self._context, request)
        raise ApiError("not_found", f"there is no {scope['path']}; /api/v1/openapi.json has all paths")


def _routes(context: WebContext, assets: Assets) -> Iterator[StarletteRoute]:
    by_path: dict[str, list[Route]] = {}
    for route in ROUTES:
        by_path.setdefault(route.full_path, []).append(route)
    for path, routes in by_path.items():
        yield StarletteRoute(path, PathEndpoint(context, routes))
    unknown = _UnknownPath(context)
    for path in ("/api", "/api/{path:path}", "/metrics/{path:path}"):
        yield StarletteRoute(path, unknown)
    yield StarletteRoute("/static/{name:path}", StaticEndpoint(assets))
    yield StarletteRoute("/{path:path}", PageEndpoint(context, assets))
