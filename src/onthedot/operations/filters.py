"""Filters of tasks as people write them: in one box (``source:deliver customer:acme since:1h``), or one by one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from onthedot.errors import ArgumentError
from onthedot.operations.task_queries import TaskFilter

_TIME_AGO = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(s|m|h|d|w)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MAX_AGO = 100 * 366 * 86_400  # seconds
_CONDITION = re.compile(r"([^=]*[^=:])(:?=)(.*)", re.DOTALL)
_TERM = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*+"|"[^"]*+$)+')
_KEYED = re.compile(r"([^\s:\"]+):(=?)(.*)", re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"?')
_ESCAPED = re.compile(r"\\(.)")

TEXT_FILTERS = ("source", "state", "tag", "error", "group", "flow", "uuid")
TIME_FILTERS = ("since", "until")


def parse_filter(text: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> TaskFilter:
    """The filter of a box.

    ``key:value`` terms; quotes for spaces. A key that is no filter is a path of an argument or of metadata, ``key:=…``
    one that is compared as JSON. Words without a key are part of the uuid, the label or the error. ArgumentError: a
    filter twice, or a value that cannot be read.

    >>> parse_filter('source:deliver customer:"acme inc" order.id:=17 refused')
    {'source': 'deliver', 'where': {'customer': 'acme inc', 'order.id': 17}, 'text': 'refused'}
    """
    found: TaskFilter = {}
    conditions: dict[str, object] = {}
    words: list[str] = []
    for term in _TERM.findall(text):
        keyed = _KEYED.fullmatch(term)
        if keyed is None:
            words.append(_unquoted(term))
            continue
        key, as_json, value = keyed.groups()
        value = _unquoted(value)
        if key in (*TEXT_FILTERS, *TIME_FILTERS) and not as_json:
            if key in found:
                raise ArgumentError(f"{key}: is given twice")
            put_filter(found, key, value, now)
        elif key in conditions:
            raise ArgumentError(f"{key}: is given twice")
        else:
            conditions[key] = _json(value, term) if as_json else value
    if conditions:
        found["where"] = conditions
    if words:
        found["text"] = " ".join(words)
    return found


def put_filter(found: TaskFilter, key: str, value: str, now: Callable[[], datetime]) -> None:
    """Set one filter from its text."""
    match key:
        case "since":
            found["since"] = parse_moment(value, now())
        case "until":
            found["until"] = parse_moment(value, now())
        case "source" | "state" | "tag" | "error" | "group" | "flow" | "uuid":
            found[key] = value
        case _:
            raise ArgumentError(f"no filter {key!r}")


def parse_moment(text: str, now: datetime) -> datetime:
    """A time ago ("30s", "1h", "7d") or a moment in ISO 8601, which without a zone is local time.

    >>> parse_moment("1h", datetime(2026, 11, 16, 9, tzinfo=UTC)).isoformat()
    '2026-11-16T08:00:00+00:00'
    """
    if ago := _TIME_AGO.fullmatch(text.strip()):
        return now - timedelta(seconds=min(float(ago[1]) * _UNITS[ago[2]], _MAX_AGO))
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            found = found.astimezone()
        return found.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        message = f"{text!r} is neither a time ago (30s, 10m, 1h, 7d) nor a moment (2026-11-16T09:00)"
        raise ArgumentError(message) from None


def parse_conditions(given: Iterable[str]) -> dict[str, object]:
    """Conditions on arguments: `path=text`, which also matches the number written so, or `path:=JSON`.

    >>> parse_conditions(["customer=acme", "order.id:=17"])
    {'customer': 'acme', 'order.id': 17}
    """
    found: dict[str, object] = {}
    for text in given:
        condition = _CONDITION.fullmatch(text)
        if condition is None:
            raise ArgumentError(
                f"{text!r}: write customer=acme or order.id=17; order.id:=17 is the number, and no text"
            )
        path, operator, value = condition.groups()
        if path in found:
            raise ArgumentError(f"{path} is given twice")
        found[path] = value if operator == "=" else _json(value, text)
    return found


def _json(value: str, text: str) -> object:
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ArgumentError(f"{text!r} is not JSON after := ({error})") from None


def _unquoted(text: str) -> str:
    return _QUOTED.sub(lambda quoted: _ESCAPED.sub(r"\1", quoted[1]), text)
