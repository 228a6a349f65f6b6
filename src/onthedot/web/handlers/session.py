"""Sign in and out, the health of this process, and the description of the API."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from onthedot.errors import StoreError
from onthedot.web.auth import TokenAuthenticator, clear_cookie, set_cookie
from onthedot.web.endpoints import Answer, NoBody, Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.schemas import Health, SignIn
from onthedot.web.security import is_same_origin
from onthedot.web.sign_in import checked_sign_in

_READY_WITHIN = 1.0  # seconds


async def sign_in(call: WebCall[Query, SignIn]) -> Response:
    authenticator = call.context.authenticator
    if not isinstance(authenticator, TokenAuthenticator):
        raise ApiError("not_available", "the program that this page is part of signs its users in")
    if call.request.headers.get("origin") is not None and not is_same_origin(call.request):
        raise ApiError("forbidden", "a sign-in must come from the page itself: Origin differs")
    user = checked_sign_in(call.context, call.request, call.body.token)
    response = Response(status_code=204)
    set_cookie(call.request, response, authenticator.new_cookie(user))
    return response


async def sign_out(call: WebCall[Query, NoBody]) -> Response:
    response = Response(status_code=204)
    clear_cookie(call.request, response)
    return response


async def report_liveness(call: WebCall[Query, None]) -> Health:  # noqa: ARG001 - the signature of a handler
    return Health("ok")


async def report_readiness(call: WebCall[Query, None]) -> Answer:
    """Whether the store answers within a second."""
    try:
        async with asyncio.timeout(_READY_WITHIN):
            await call.context.shared.get("ready", _READY_WITHIN, call.operations.counts)
    except TimeoutError:
        return Answer(Health("the store does not answer within 1 s"), 503)
    except StoreError:
        return Answer(Health("the store cannot be read"), 503)
    except ApiError as error:  # the app is not open
        return Answer(Health(error.code), 503)
    return Answer(Health("ok"))
