"""Secrets in arguments and other data, before people see them: the one place that decides what is hidden."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

HIDDEN = "…"
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_KEY = re.compile(
    r"(?:^|_)(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|api_?key|authorization|cookie|credential|private_?key"
    r"|card(?:_?number)?|cvv|cvc|ssn)s?(?:_|$)"
)
_LOGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s]*@")
_BEARER = re.compile(r"\b(bearer|basic)\s+\S+", re.IGNORECASE)


def redacted(value: object) -> object:
    """A copy without values whose key names a secret, logins in URLs, and bearer tokens; at any depth.

    >>> redacted({"to": "ann", "apiKey": "k-17", "store": "redis://:pw@cache", "headers": [{"Authorization": "x"}]})
    {'to': 'ann', 'apiKey': '…', 'store': 'redis://…@cache', 'headers': [{'Authorization': '…'}]}
    """
    if isinstance(value, str):
        return _BEARER.sub(rf"\1 {HIDDEN}", _LOGIN.sub(rf"\1{HIDDEN}@", value))
    if isinstance(value, Mapping):
        items = cast(Mapping[object, object], value).items()
        return {key: HIDDEN if _is_secret(key) else redacted(item) for key, item in items}
    if isinstance(value, list | tuple):
        return [redacted(item) for item in cast(Sequence[object], value)]
    return value


def _is_secret(key: object) -> bool:
    if not isinstance(key, str):
        return False
    words = re.sub(r"[^a-z0-9]+", "_", _WORD_START.sub("_", key).lower())
    return _SECRET_KEY.search(words) is not None
