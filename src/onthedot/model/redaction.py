"""Secrets in arguments and other data, before people see them: the one place that decides what is hidden."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias, cast

from onthedot.errors import OnTheDotError

HIDDEN = "…"
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_KEY = re.compile(
    r"(?:^|_)(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|api_?key|authorization|cookie|credential|private_?key"
    r"|card(?:_?number)?|cvv|cvc|ssn)s?(?:_|$)"
)
_LOGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)[^/\s]*@")
_BEARER = re.compile(r"\b(bearer|basic)\s+\S+", re.IGNORECASE)
_CUT_LOGIN = re.compile(r"://[^/\s]*\Z")
_NAMED = re.compile(r"""([A-Za-z_][\w-]{0,60}+)(?:\\{0,15}["'])?\s?[=:]\s?""")
_QUOTED = r"""(?P<quote>\\{0,15}["'])(?:(?!(?P=quote))(?:\\.|[^\\\n]))*(?:(?P=quote))?"""
_NAMED_VALUE = re.compile(rf"""(?!bearer\b|basic\b)(?:{_QUOTED}|[^\s"',;&()\[\]{{}}]+)""", re.IGNORECASE)
_INDEX = re.compile(r"\b\d+\b")
_BRACKETS = re.compile(rf"{_QUOTED}|[(\[{{]|[)\]}}]")
RedactFunction: TypeAlias = Callable[[str, object], object]
"""A function of the user's: the path of a value and the value → the value that is shown."""


class RedactedValue(NamedTuple):
    """A value without its secrets, and the paths where they were."""

    value: object
    paths: tuple[str, ...]


class Redaction:
    """The rules that find secrets.

    pattern: a regular expression for names of more secrets
    function: called for every value below the first; its answer is shown

    >>> Redaction("^iban$").value({"to": "ann", "bank": [{"iban": "DE02"}]})
    RedactedValue(value={'to': 'ann', 'bank': [{'iban': '…'}]}, paths=('bank.0.iban',))
    """

    def __init__(self, pattern: str = "", function: RedactFunction | None = None) -> None:
        self._more = re.compile(pattern) if pattern else None
        self._function = function

    def is_secret(self, name: object) -> bool:
        """Whether a value under this name is a secret."""
        if not isinstance(name, str):
            return False
        words = re.sub(r"[^a-z0-9]+", "_", _WORD_START.sub("_", name).lower())
        if _SECRET_KEY.search(words) is not None:
            return True
        return self._more is not None and self._more.search(name) is not None

    def covers(self, path: str) -> bool:
        """Whether a path leads to a secret, or through one.

        >>> Redaction().covers("order.card.owner"), Redaction().covers("order.id")
        (True, False)
        """
        return any(self.is_secret(part) for part in (path, *path.split(".")))

    def value(self, value: object, names: Collection[str] = ()) -> RedactedValue:
        """A copy without secrets, at any depth.

        names: paths of mappings whose keys name no values, but sources or tasks; `*` stands for every item of a list

        >>> Redaction().value([{"running": {"charge_card": 2}}], names=["*.running"]).value
        [{'running': {'charge_card': 2}}]
        """
        paths: list[str] = []
        return RedactedValue(self._redact(value, "", paths, names), tuple(paths))

    def _redact(self, value: object, path: str, paths: list[str], names: Collection[str]) -> object:
        if self._function is not None and path:
            shown = self._function(path, value)
            if shown is not value:
                paths.append(path)
                return shown
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            found: dict[object, object] = {}
            are_names = bool(names) and _INDEX.sub("*", path) in names
            for key, item in cast(Mapping[object, object], value).items():
                below = f"{path}.{key}" if path else str(key)
                found[key] = HIDDEN
                if self.is_secret(key) and not are_names:
                    paths.append(below)
                else:
                    found[key] = self._redact(item, below, paths, names)
            return found
        if isinstance(value, list | tuple):
            items = enumerate(cast(Sequence[object], value))
            return [
                self._redact(item, f"{path}.{index}" if path else str(index), paths, names) for index, item in items
            ]
        return value

    def text(self, text: str) -> str:
        """A text without logins in URLs, bearer tokens, and values that a secret's name is written before.

        A value in brackets ends with its bracket, or with the text. What is hidden already stays as it is.

        >>> Redaction().text("GET https://ann:x@shop/?token=abc&page=2 with Authorization: Bearer abc")
        'GET https://…@shop/?token=…&page=2 with Authorization: Bearer …'
        """
        text = _BEARER.sub(rf"\1 {HIDDEN}", _LOGIN.sub(rf"\1{HIDDEN}@", text))
        parts: list[str] = []
        end = 0
        for named in _NAMED.finditer(text):
            if named.start() < end or not self.is_secret(named[1]):
                continue
            value_end = _end_of_value(text, named.end())
            if value_end > named.end() and text[named.end() : value_end].strip("\\\"'") != HIDDEN:
                parts += [text[end : named.end()], HIDDEN]
                end = value_end
        return "".join([*parts, text[end:]])

    def beginning(self, text: str, limit: int) -> str:
        """Up to `limit` characters of a text without secrets; the time does not depend on how long the text is."""
        return self.text(cut_text(text, 2 * limit))[:limit]  # what hides secrets can make it shorter


def cut_text(text: str, length: int) -> str:
    """The beginning of a text, without a login whose end is cut off.

    >>> cut_text("from redis://ann:pw@cache", 18)
    'from redis://'
    """
    return text if len(text) <= length else _CUT_LOGIN.sub("://", text[:length])


def _end_of_value(text: str, start: int) -> int:
    """The end of a value in a text: a word, a quoted text, and what is in brackets behind it."""
    value = _NAMED_VALUE.match(text, start)
    end = start if value is None else value.end()
    if text[end : end + 1] not in ("(", "[", "{"):
        return end
    depth = 0
    for token in _BRACKETS.finditer(text, end):
        if token["quote"] is None:
            depth += 1 if token[0] in "([{" else -1
        if depth == 0:
            return token.end()
    return len(text)


@cache
def default_redaction() -> Redaction:
    """The rules of this process: those of `Redaction`, and ``$ONTHEDOT_REDACT``."""
    pattern = os.environ.get("ONTHEDOT_REDACT", "")
    try:
        return Redaction(pattern)
    except re.error as error:
        raise OnTheDotError(f"ONTHEDOT_REDACT={pattern!r} is not a regular expression: {error}") from None


def redacted(value: object) -> object:
    """A copy without values whose key names a secret, logins in URLs, and bearer tokens; at any depth.

    >>> redacted({"to": "ann", "apiKey": "k-17", "store": "redis://:pw@cache", "headers": [{"Authorization": "x"}]})
    {'to': 'ann', 'apiKey': '…', 'store': 'redis://…@cache', 'headers': [{'Authorization': '…'}]}
    """
    return default_redaction().value(value).value
