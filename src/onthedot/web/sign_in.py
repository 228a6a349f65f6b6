"""A token becomes a cookie; wrong ones are counted by address."""

from __future__ import annotations

import logging

from starlette.requests import Request

from onthedot.web.context import WebContext
from onthedot.web.errors import ApiError
from onthedot.web.settings import User

_log = logging.getLogger("onthedot.web")


def checked_sign_in(context: WebContext, request: Request, token: str) -> User:
    """The user of a token. ApiError: it is wrong, or too many were wrong."""
    address = "unknown"
    if request.client is not None:
        address = request.client.host
    if not context.sign_ins.has(address):
        raise ApiError("too_many", "too many wrong tokens from this address; wait a minute", retry_after=60)
    user = context.authenticator.sign_in(token)
    if user is None:
        context.sign_ins.spend(address)
        _log.warning("[sign-in] wrong token from %s", address)
        raise ApiError("unauthorized", "this token is not known")
    return user
