"""Settings that are checked together: one error names every wrong field, and nothing is converted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from msgspec import ValidationError, convert

from onthedot.errors import DeclarationError

YEAR = 365 * 86_400
Given: TypeAlias = Mapping[str, Any]
"""Fields by name."""
_COLLECTIONS: dict[Any, str] = {Mapping: "a dict, each value ", Sequence: "a list, each ", tuple: "a tuple, each "}


def check_settings(settings: type, given: Given, further: Callable[[Given, Given], Iterable[str]]) -> None:
    """DeclarationError that lists every wrong field, with its range or the nearest name.

    settings: a dataclass whose annotations have the ranges. given: the fields of a call. further: problems of fields
    together; it gets all fields and those that are right.
    """
    known = get_type_hints(settings, include_extras=True)
    problems: list[str] = []
    right: dict[str, Any] = {}
    for name, value in given.items():
        if problem := _problem(name, value, known):
            problems.append(problem)
        else:
            right[name] = value
    problems += further(given, right)
    if problems:
        raise DeclarationError("\n  ".join([f"{settings.__name__}: {len(problems)} wrong", *problems]))


def shown_setting(name: str, value: object) -> str:
    """A field in a message, without a password.

    >>> shown_setting("redis_password", "s3cret"), shown_setting("url", "redis://:s3cret@cache")
    ('redis_password=…', "url='redis://…@cache'")
    """
    if "password" in name:
        return f"{name}=…"
    return f"{name}={re.sub('(?<=://).*@', '…@', repr(value))}"


def _problem(name: str, value: object, known: Mapping[str, Any]) -> str:
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0.5)
        return "".join([f"{name}: there is no such field", *(f"; did you mean {each}?" for each in near)])
    if _fits(value, known[name]):
        return ""
    return f"{shown_setting(name, value)}: must be {' or '.join(_expected(known[name]))}"


def _fits(value: object, hint: Any) -> bool:
    if all(isinstance(option, type) for option in get_args(hint)):  # classes without a range
        return isinstance(value, hint)
    try:
        convert(value, hint)  # a check only: the value is kept as given
    except ValidationError:
        return False
    return True


def _expected(hint: Any) -> Iterator[str]:
    """The texts of the options of an annotation."""
    origin = get_origin(hint)
    if origin is Annotated:
        kind, meta = get_args(hint)
        what = "a whole number" if kind is int else "a number of seconds"
        yield meta.description or f"{what} from {meta.ge} to {meta.le}"
    elif origin is Literal:
        yield f"one of {', '.join(map(str, get_args(hint)))}"
    elif origin in _COLLECTIONS:
        (each,) = _expected([option for option in get_args(hint) if option is not ...][-1])
        yield _COLLECTIONS[origin] + each
    elif isinstance(hint, type):
        if hint is not NoneType:
            yield f"of type {hint.__name__}"
    else:
        for option in get_args(hint):
            yield from _expected(option)
