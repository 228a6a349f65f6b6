"""Match tasks by their arguments. A path has dots: ``order.items.0.sku``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, time
from typing import cast

import msgspec

from onthedot.errors import ArgumentError

_JSON_TYPES: tuple[type, ...] = (bool, int, float, list, dict, type(None))


def matches(wanted: Mapping[str, object], *values: Mapping[str, object]) -> bool:
    """Return whether every wanted value is found under its path in one of the mappings.

    A text also matches the number, date or true/false that is written so: a command line has texts only.

    >>> order = {"customer": "acme", "order": {"id": 17, "paid": True, "items": ["a", "b"]}}
    >>> matches({"customer": "acme", "order.id": "17", "order.paid": "true", "order.items.1": "b"}, order)
    True
    >>> matches({"order.id": 17}, order), matches({"order.id": 17}, {"order": {"id": "17"}})
    (True, False)
    """
    return all(
        any(_equal(found, value) for each in values for found in _values_at(each, path))
        for path, value in wanted.items()
    )


def check_conditions(wanted: object) -> None:
    if isinstance(wanted, Mapping) and all(isinstance(path, str) for path in cast(Mapping[object, object], wanted)):
        return
    raise ArgumentError(f'where={wanted!r} is not a dict of paths and values, as in {{"customer": "acme"}}')


def _values_at(value: object, path: str) -> Iterator[object]:
    """Yield all values that the path may name: a key may contain dots."""
    head, dot, rest = path.partition(".")
    if isinstance(value, Mapping):
        within = cast(Mapping[object, object], value)
        if path in within:
            yield within[path]
        if dot and head in within:
            yield from _values_at(within[head], rest)
    elif isinstance(value, list | tuple) and head.isdecimal():
        items = cast("list[object]", value)
        for item in items[int(head) : int(head) + 1]:
            if dot:
                yield from _values_at(item, rest)
            else:
                yield item


def _equal(found: object, wanted: object) -> bool:
    if isinstance(found, tuple):
        found = list(cast("tuple[object, ...]", found))
    if isinstance(found, bool) != isinstance(wanted, bool) and not isinstance(wanted, str):
        return False  # True == 1 in Python
    if found == wanted:
        return True
    return isinstance(wanted, str) and not isinstance(found, str) and _equals_text(found, wanted)


def _equals_text(found: object, text: str) -> bool:
    if isinstance(found, date | time):
        return text == found.isoformat()
    if not isinstance(found, _JSON_TYPES):
        return text == str(found)
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return not isinstance(value, str) and _equal(found, value)
