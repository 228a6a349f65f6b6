"""Errors of the HTTP API: their codes, and the errors of onthedot as such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import msgspec
from starlette.responses import Response

from onthedot.errors import (
    ArgumentError,
    DeclarationError,
    OnTheDotError,
    ResultExpired,
    ResultNotStored,
    SourceFrozen,
    StoreBusy,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    TaskNotFound,
)
from onthedot.web.schemas import ErrorAnswer, ErrorDetail

STATUSES: Mapping[str, int] = {
    "bad_request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "not_available": 404,
    "method_not_allowed": 405,
    "ambiguous": 409,
    "conflict": 409,
    "precondition_failed": 412,
    "too_large": 413,
    "unsupported_type": 415,
    "wrong_host": 421,
    "invalid": 422,
    "too_many": 429,
    "store_full": 429,
    "internal": 500,
    "store_unavailable": 503,
    "store_busy": 503,
    "store_refused": 503,
    "bus_unavailable": 503,
    "frozen": 503,
    "too_many_streams": 503,
    "not_open": 503,
}
"""Every code of an error, with its HTTP status. Codes are stable, messages are not."""
_RETRY_AFTER = {429: 1, 503: 2}  # seconds, unless the error says more


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        field: str | None = None,
        candidates: Sequence[str] | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status: int = STATUSES[code]
        self.message = message
        self.field = field
        self.candidates = candidates
        self.headers: dict[str, str] = dict(headers or {})
        wait = _RETRY_AFTER.get(self.status) if retry_after is None else ceil(retry_after)
        if wait is not None:
            self.headers["Retry-After"] = str(wait)


def as_api_error(error: OnTheDotError) -> ApiError:
    """The answer to an error of a store or an operation."""
    message = str(error)
    match error:
        case TaskNotFound() | ResultExpired() | ResultNotStored():
            return ApiError("not_found", message)
        case SourceFrozen():
            return ApiError("frozen", message, retry_after=error.retry_after)
        case StoreFull():
            return ApiError("store_full", message)
        case StoreBusy():
            return ApiError("store_busy", message)
        case StoreRefused():
            return ApiError("store_refused", message)
        case StoreUnavailable():
            return ApiError("store_unavailable", message)
        case ArgumentError() | DeclarationError():
            return ApiError("invalid", message)
        case _:
            return ApiError("invalid", message)


def error_response(error: ApiError, request_id: str) -> Response:
    detail = ErrorDetail(error.code, error.message, request_id, error.field, error.candidates)
    body = msgspec.json.encode(ErrorAnswer(detail))
    return Response(body, error.status, error.headers, "application/json")
