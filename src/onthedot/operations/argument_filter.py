"""Which tasks have these arguments? A path goes in by dots: ``order.items.0.sku``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, time
from typing import cast

import msgspec

from onthedot.errors import ArgumentError

_JSON: tuple[type, ...] = (bool, int, float, list, dict, type(None))


def has(wanted: Mapping[str, object], *places: Mapping[str, object]) -> bool:
    """Is every value where it is wanted, in one of the places?

    A text also fits the number, date or true/false that is written so: from a command line everything comes as text.

    >>> order = {"customer": "acme", "order": {"id": 17, "paid": True, "items": ["a", "b"]}}
    >>> has({"customer": "acme", "order.id": "17", "order.paid": "true", "order.items.1": "b"}, order)
    True
    >>> has({"order.id": 17}, order), has({"order.id": 17}, {"order": {"id": "17"}})
    (True, False)
    """
    return all(
        any(_same(found, value) for each in places for found in _at(each, path)) for path, value in wanted.items()
    )


def check(wanted: object) -> Mapping[str, object]:
    given = cast("Mapping[object, object] | None", wanted if isinstance(wanted, Mapping) else None)
    if given is None or not all(isinstance(path, str) for path in given):
        raise ArgumentError(f'where={wanted!r} is not a dict of paths and values, as in {{"customer": "acme"}}')
    return cast(Mapping[str, object], given)


def _at(value: object, path: str) -> Iterator[object]:
    """All that the path may mean: a key may have dots of its own."""
    head, dot, rest = path.partition(".")
    if isinstance(value, Mapping):
        within = cast(Mapping[object, object], value)
        if path in within:
            yield within[path]
        if dot and head in within:
            yield from _at(within[head], rest)
    elif isinstance(value, list | tuple) and head.isdecimal():
        items = cast("list[object]", value)
        for item in items[int(head) : int(head) + 1]:
            yield from _at(item, rest) if dot else (item,)


def _same(found: object, wanted: object) -> bool:
    if isinstance(found, tuple):
        found = list(cast("tuple[object, ...]", found))
    if isinstance(found, bool) != isinstance(wanted, bool) and not isinstance(wanted, str):
        return False  # True is no 1
    if found == wanted:
        return True
    return isinstance(wanted, str) and not isinstance(found, str) and _written(found, wanted)


def _written(found: object, text: str) -> bool:
    if isinstance(found, date | time):
        return text == found.isoformat()
    if not isinstance(found, _JSON):
        return text == str(found)
    try:
        meant = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return not isinstance(meant, str) and _same(found, meant)
