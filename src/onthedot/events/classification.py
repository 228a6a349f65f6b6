"""Errors of agents, classified: which are retried, wait, or make a dead letter."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from random import Random
from typing import Any, Literal, TypeAlias, cast

from onthedot.errors import Reject, Retry, Snooze, TaskControl

Classification: TypeAlias = Literal["retriable", "permanent"] | Retry | Snooze
"""retriable: again after a backoff, up to `max_retries`. permanent: a dead letter at once. Retry, Snooze: as raised."""

_THROTTLED = (429, 503)
_RETRIABLE = (408, 425, *_THROTTLED)
_SHORTEST = 1.0  # seconds of a pause
_LONGEST = 300.0
_JITTER = 0.1
_random = Random()
_HEADERS = ("headers", "litellm_response_headers")  # attributes of errors


def classify(error: BaseException) -> Classification:
    """The classification that an agent uses, unless its `classify_error` decides otherwise.

    It knows the errors of httpx, openai, litellm, aiohttp, requests and urllib by their attributes: a status, and a
    response or headers.

    - 429 and 503 with ``Retry-After``: a `Snooze` of 1 to 300 seconds, and up to 10 % more. It uses no retry.
    - Other statuses of 4xx, except 408, 425 and 429: permanent. So is a raised `Reject`.
    - Everything else, such as timeouts, broken connections, 5xx and bugs: retriable.

    Args:
        error: what ``process`` has raised.

    >>> classify(ConnectionError()), classify(ValueError("a bug"))
    ('retriable', 'retriable')
    >>> class NotFound(Exception):
    ...     status_code = 404
    >>> classify(NotFound())
    'permanent'
    """
    if isinstance(error, Retry | Snooze):
        return error
    if isinstance(error, TaskControl):
        return "permanent" if isinstance(error, Reject) else "retriable"
    status = _status(error)
    if status in _THROTTLED and (after := _retry_after(error)) is not None:
        pause = min(max(after, _SHORTEST), _LONGEST)
        return Snooze(pause * _random.uniform(1, 1 + _JITTER))
    if status is not None and 400 <= status < 500 and status not in _RETRIABLE:
        return "permanent"
    return "retriable"


def _status(error: BaseException) -> int | None:
    """The HTTP status of an error; None: it has none."""
    response = _attribute(error, "response")
    candidates = [_attribute(error, "status_code"), _attribute(error, "status")]
    candidates += [_attribute(response, "status_code"), _attribute(response, "status")]
    if _attribute(error, "headers") is not None:
        candidates.append(_attribute(error, "code"))  # urllib's; elsewhere a code may be anything
    for status in candidates:
        if isinstance(status, int) and not isinstance(status, bool) and 100 <= status <= 599:
            return int(status)
    return None


def _retry_after(error: BaseException) -> float | None:
    """The seconds that the other side asks to wait; None: it does not."""
    response = _attribute(error, "response")
    for place in (_attribute(response, "headers"), *[_attribute(error, name) for name in _HEADERS]):
        headers = _texts(place)
        if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
            return milliseconds / 1000
        value = headers.get("retry-after")
        seconds = _number(value)
        if seconds is None:
            seconds = _seconds_until(value)
        if seconds is not None:
            return seconds
    return None


def _attribute(holder: object, name: str) -> object:
    """An attribute of anyone's class, which may compute it and raise."""
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - an error that cannot be asked has no such attribute
        return None


def _texts(headers: object) -> dict[str, str]:
    """Headers by name in lower case; none of an object that is no mapping."""
    if not isinstance(headers, Mapping) and not hasattr(headers, "items"):
        return {}
    try:
        pairs = list(cast("Mapping[Any, Any]", headers).items())
        return {_text(name).lower(): _text(value) for name, value in pairs}
    except Exception:  # noqa: BLE001 - as above
        return {}


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if isfinite(number) and number >= 0 else None


def _seconds_until(text: str | None) -> float | None:
    """Seconds to the date of a header."""
    try:
        moment = parsedate_to_datetime(text or "")
    except (TypeError, ValueError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
