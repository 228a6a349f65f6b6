"""Tagged JSON: each value carries its type, for values that no annotation describes.

Values that JSON has are plain JSON. Every other value is an object with a single key that begins with ``!``:

==========================================  ==========================================
value                                       written as
==========================================  ==========================================
``None True 1 1.5 "x" [1, 2] {"a": 1}``     itself
``(1, 2)``                                  ``{"!tuple": [1, 2]}``
``{1}``, ``frozenset({1})``                 ``{"!set": [1]}``, ``{"!frozenset": [1]}``
``{1: "a"}``, ``{"!x": 1}``                 ``{"!dict": [[1, "a"]]}``, ``{"!dict": [["!x", 1]]}``
``b"a"``, ``bytearray(b"a")``               ``{"!bytes": "YQ=="}``, ``{"!bytearray": "YQ=="}``
``datetime``, ``date``, ``time``            ``{"!datetime": "2026-01-31T12:00:00+05:45"}``, ``!date``, ``!time``
such with ``fold=1``                        ``{"!datetime": ["2026-10-25T02:30:00", 1]}``, ``!time``
such with a ``ZoneInfo``                    ``{"!datetime": ["2026-01-31T12:00:00+01:00", 0, "Europe/Berlin"]}``
``timedelta``                               ``{"!timedelta": [days, seconds, microseconds]}``
``Decimal``, ``UUID``, ``Path``             ``{"!decimal": "1.50"}``, ``!uuid``, ``!path``
``nan``, ``inf``, ``-inf``                  ``{"!float": "nan"}``
integers of more than 2000 bits             ``{"!int": "0x…"}``: Python limits the decimal digits that it parses
instance of a class in the annotation       ``{"!of": ["Point", {"x": 1, "y": 2}]}``
==========================================  ==========================================

A dict with a key that is not a str, or that begins with ``!``, is always a ``!dict``, so no data can imitate a tag.
``!of`` names one of the classes in the reader's own annotation; no class is looked up by name anywhere else.

>>> to_tagged((1, {2: b"a"}))
{'!tuple': [1, {'!dict': [[2, {'!bytes': 'YQ=='}]]}]}
>>> from_tagged(to_tagged((1, {2: b"a"})))
(1, {2: b'a'})
"""
# Values of any type are the subject here.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

import dataclasses
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

Classes: TypeAlias = Mapping[str, type | None]
"""The classes an annotation mentions, by name; None where two share a name."""
NO_CLASSES: Classes = MappingProxyType({})
DEPTH = 64

_V = TypeVar("_V")
_R = TypeVar("_R")
_BIG = 1 << 2000


class Unstorable(ValueError):
    """A value that would not come back as it is; `steps` leads to it, innermost first."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.steps: list[object] = []

    def path(self, root: str = "$") -> str:
        return root + "".join(map(_step, reversed(self.steps)))


class TooDeep(Unstorable):
    """Nested beyond the limit, or containing itself."""

    def __init__(self) -> None:
        super().__init__("is nested too deep")


def to_tagged(value: object, classes: Classes = NO_CLASSES, depth: int = DEPTH) -> object:
    """The tagged form of a value, made of JSON types; Unstorable if there is none."""
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)  # type: ignore[attr-defined]
    if kind is int:
        return value if -_BIG < value < _BIG else {"!int": hex(value)}  # type: ignore[operator, arg-type]
    if value is None or kind is bool:
        return value
    if kind is float:
        return value if isfinite(value) else {"!float": repr(value)}  # type: ignore[arg-type]
    if scalar := _SCALARS.get(kind):
        return {scalar.key: scalar.write(value)}
    if depth <= 0:
        raise TooDeep
    return _tag_container(value, classes, depth - 1)


def from_tagged(value: object, classes: Classes | None = NO_CLASSES) -> Any:
    """The value of a tagged form. Without `classes` (None) an instance is shown as its fields.

    Raises ValueError, TypeError or the like for anything that `to_tagged` does not write.
    """
    if type(value) is list:
        return [from_tagged(item, classes) for item in value]
    if type(value) is not dict:
        return value
    if len(value) == 1:
        ((key, content),) = value.items()
        if key[:1] == "!":
            return _untag_object(key, content, classes)
    if any(key[:1] == "!" for key in value):
        raise ValueError("an object with a tag among its keys")
    return {key: from_tagged(item, classes) for key, item in value.items()}


def deep_equal(a: object, b: object, depth: int = DEPTH) -> bool:
    """Whether two values are equal and of the same type, all the way down; nan equals nan.

    Datetimes are equal with the same wall clock time, fold, and offset or key of a ZoneInfo.

    >>> deep_equal([1, {"a": float("nan")}], [1, {"a": float("nan")}])
    True
    >>> deep_equal([1], [1.0]), deep_equal([1], [True])
    (False, False)
    """
    kind = type(a)
    if kind is not type(b):
        return False
    if kind in _COMPARED_BY_VALUE:
        return a == b
    if compared := _COMPARED_BY.get(kind):
        return bool(compared(a) == compared(b))
    if isinstance(a, Enum):
        return a is b
    if depth <= 0:
        raise TooDeep
    if isinstance(a, list | tuple):
        return _all_equal(a, b, depth)
    if isinstance(a, dict):
        return _all_equal(a.keys(), b.keys(), depth) and _all_equal(a.values(), b.values(), depth)  # type: ignore[attr-defined]
    if isinstance(a, set | frozenset):
        return _equal_members(a, b, depth)  # type: ignore[arg-type]
    if names := fields_of(kind):
        return all(deep_equal(getattr(a, name, ...), getattr(b, name, ...), depth - 1) for name in names)
    return bool(a == b)


def _fields_of(kind: type) -> tuple[str, ...]:
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if is_model(kind):
        return (*kind.model_fields, "__pydantic_extra__", "__pydantic_private__")  # type: ignore[attr-defined]
    return tuple(attribute.name for attribute in getattr(kind, "__attrs_attrs__", ()))


fields_of: Callable[[type], tuple[str, ...]] = lru_cache(maxsize=1024)(_fields_of)
"""The fields of a dataclass, msgspec Struct, pydantic model or attrs class; empty for any other class."""


def is_model(kind: type) -> bool:
    """Whether this looks like a pydantic model, without importing pydantic."""
    return all(hasattr(kind, name) for name in ("model_dump", "model_validate", "model_fields"))


def type_name(kind: object) -> str:
    """
    >>> type_name(int), type_name(UUID), type_name(list[int] | None)
    ('int', 'uuid.UUID', 'list[int] | None')
    """
    if isinstance(kind, type) and not hasattr(kind, "__origin__"):
        if kind.__module__ in ("builtins", "__main__"):
            return kind.__qualname__
        return f"{kind.__module__}.{kind.__qualname__}"
    return str(kind).replace("typing.", "").replace("__main__.", "")


def map_with_path(pairs: Iterable[tuple[object, _V]], visit: Callable[[_V], _R]) -> list[_R]:
    """Applies `visit` to every value; an Unstorable gets the step that leads to its value."""
    visited = []
    for step, value in pairs:
        try:
            visited.append(visit(value))
        except Unstorable as error:
            error.steps.append(step)
            raise
    return visited


MEMBER = object()
"""The step into a set, whose members have no index."""


def _step(step: object) -> str:
    if isinstance(step, str):
        return f".{step}" if step.isidentifier() else f"[{step[:40]!r}]"
    if step is MEMBER:
        return "[*]"
    if type(step) is int and abs(step) < 1 << 64:
        return f"[{step}]"
    return f"[{type_name(type(step))}]"  # not the repr of a user's key: it may be long, or raise


def _text(value: Any) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Unstorable(
                f"is a str with a lone surrogate at {error.start}, which is no text that can be stored; "
                "pass bytes, or decode it with errors='replace'"
            ) from None
    return str(value)


def _tag_container(value: Any, classes: Classes, depth: int) -> object:
    def inner(item: object) -> object:
        return to_tagged(item, classes, depth)

    kind = type(value)
    if kind is dict:
        if _is_plain(value):
            return dict(value)
        if all(type(key) is str and key[:1] != "!" for key in value):
            return dict(zip(map(_text, value), map_with_path(value.items(), inner), strict=True))
        keys = map_with_path(((key, key) for key in value), inner)
        return {"!dict": [list(pair) for pair in zip(keys, map_with_path(value.items(), inner), strict=True)]}
    if kind is list:
        return map_with_path(enumerate(value), inner)
    if kind is tuple:
        return {"!tuple": map_with_path(enumerate(value), inner)}
    if kind is set or kind is frozenset:
        return {f"!{kind.__name__}": map_with_path(((MEMBER, member) for member in value), inner)}
    if classes.get(kind.__name__) is not kind:
        raise Unstorable(f"is of type {type_name(kind)}, which cannot be stored; {_advice(kind)}")
    return {"!of": [kind.__name__, _tag_instance(value, inner)]}


def _is_plain(value: dict[Any, Any]) -> bool:
    """Whether a dict is its own tagged form: a fast path for what most tasks get, names with plain values."""
    for key, item in value.items():
        kind = type(item)
        if type(key) is not str or not key.isascii() or key[:1] == "!":
            return False
        if kind is str:
            if not item.isascii():
                return False
        elif kind is int:
            if not -_BIG < item < _BIG:
                return False
        elif kind is float:
            if not isfinite(item):
                return False
        elif item is not None and kind is not bool:
            return False
    return True


def _tag_instance(value: Any, inner: Callable[[object], object]) -> object:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, tuple):
        return map_with_path(enumerate(value), inner)
    names = [name for name in fields_of(type(value)) if hasattr(value, name) and not name.startswith("__pydantic_")]
    return dict(zip(names, map_with_path(((name, getattr(value, name)) for name in names), inner), strict=True))


def _advice(kind: type) -> str:
    for base in (str, int, float, bool, list, tuple, set, frozenset, dict, bytes, datetime, date):
        if issubclass(kind, base) and not issubclass(kind, Enum) and not hasattr(kind, "_fields"):
            return f"pass a plain {base.__name__}, for example {base.__name__}(…)"
    if issubclass(kind, Enum | tuple | msgspec.Struct) or fields_of(kind):
        return f"annotate the parameter with {kind.__name__} itself"
    return "pass plain values (an id, a dict), or a dataclass that the parameter is annotated with"


def _untag_object(key: str, content: Any, classes: Classes | None) -> object:
    if scalar := _BY_KEY.get(key):
        return scalar.read(content)
    if type(content) is not list:
        raise ValueError("a list belongs under the tag " + key[:20])
    if container := _CONTAINERS.get(key):
        return container(from_tagged(item, classes) for item in content)
    if key == "!dict":
        return {from_tagged(name, classes): from_tagged(item, classes) for name, item in content}
    if key != "!of":
        raise ValueError(f"unknown tag {key[:20]!r}")
    name, payload = content
    fields = from_tagged(payload, classes)
    if classes is None:
        return fields
    if (kind := classes.get(name)) is None:
        raise ValueError(f"{str(name)[:60]!r} is not a class that the annotation mentions")
    return _instance(kind, fields)


def _instance(kind: Any, fields: Any) -> object:
    if issubclass(kind, Enum):
        return kind[fields]
    if issubclass(kind, tuple):
        return kind(*fields)
    if is_model(kind):
        return kind.model_validate({kind.model_fields[name].alias or name: item for name, item in fields.items()})
    dataclass_fields: Mapping[str, dataclasses.Field[object]] = getattr(kind, "__dataclass_fields__", {})
    set_after = {name for name, field in dataclass_fields.items() if not field.init}
    instance: object = kind(**{name: item for name, item in fields.items() if name not in set_after})
    for name in set_after & fields.keys():
        object.__setattr__(instance, name, fields[name])
    return instance


def _all_equal(a: Any, b: Any, depth: int) -> bool:
    return len(a) == len(b) and all(deep_equal(x, y, depth - 1) for x, y in zip(a, b, strict=True))


def _equal_members(a: set[object], b: set[object], depth: int) -> bool:
    found = {member: member for member in b}
    # The search after the lookup is for nan, which does not equal itself.
    return len(a) == len(b) and all(
        deep_equal(member, found.get(member), depth - 1) or any(deep_equal(member, other, depth - 1) for other in b)
        for member in a
    )


def _moment(value: datetime | time) -> tuple[object, ...]:
    return value.replace(tzinfo=None, fold=0), value.fold, _zone(value.tzinfo)


def _zone(zone: tzinfo | None) -> object:
    """The offset or the key of a zone: the same for two equal zones."""
    if type(zone) is timezone:
        return zone.utcoffset(None)
    if type(zone) is ZoneInfo:
        return zone.key
    return zone


def _write_moment(value: datetime | time) -> object:
    zone = value.tzinfo
    text = value.isoformat()
    if type(zone) is ZoneInfo and zone.key is not None:
        return [text, value.fold, zone.key]
    if type(zone) is timezone:
        if zone.utcoffset(None).microseconds:  # fromisoformat() is wrong by such fractions
            raise Unstorable("has a time zone without an offset in whole seconds; pass another one")
    elif zone is not None:
        raise Unstorable(
            f"has a time zone of type {type_name(type(zone))}, of which only the offset could be stored; pass it with "
            'zoneinfo.ZoneInfo("…") or datetime.timezone'
        )
    return [text, 1] if value.fold else text


def _read_moment(kind: type[datetime] | type[time]) -> Callable[[Any], object]:
    def read(content: Any) -> object:
        if isinstance(content, str):
            return kind.fromisoformat(content)
        text, fold, *zone = content
        moment = kind.fromisoformat(text).replace(fold=fold)
        if not zone:
            return moment
        return moment.replace(tzinfo=ZoneInfo(*zone))

    return read


@dataclasses.dataclass(frozen=True)
class _Scalar:
    key: str
    write: Callable[[Any], object]
    read: Callable[[Any], object]


def _base64(value: bytes | bytearray) -> str:
    return b64encode(value).decode()


_SCALARS: dict[type, _Scalar] = {
    bytes: _Scalar("!bytes", _base64, lambda content: b64decode(content, validate=True)),
    bytearray: _Scalar("!bytearray", _base64, lambda content: bytearray(b64decode(content, validate=True))),
    datetime: _Scalar("!datetime", _write_moment, _read_moment(datetime)),
    date: _Scalar("!date", date.isoformat, date.fromisoformat),
    time: _Scalar("!time", _write_moment, _read_moment(time)),
    timedelta: _Scalar(
        "!timedelta", lambda v: [v.days, v.seconds, v.microseconds], lambda content: timedelta(*content)
    ),
    Decimal: _Scalar("!decimal", str, lambda content: Decimal(_text(content))),
    UUID: _Scalar("!uuid", str, UUID),
    type(Path()): _Scalar("!path", lambda value: _text(str(value)), Path),
}
_BY_KEY = {scalar.key: scalar for scalar in _SCALARS.values()} | {
    "!float": _Scalar(
        "!float", repr, lambda content: {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[content]
    ),
    "!int": _Scalar("!int", hex, lambda content: int(content, 16)),
}
_CONTAINERS: dict[str, Callable[[Iterable[object]], object]] = {"!tuple": tuple, "!set": set, "!frozenset": frozenset}
_COMPARED_BY_VALUE = frozenset({str, int, bool, type(None), bytes, bytearray, UUID, date, timedelta, type(Path())})
_COMPARED_BY: dict[type, Callable[[Any], object]] = {
    float: repr,  # nan equals nan, and -0.0 differs from 0.0
    Decimal: Decimal.as_tuple,  # 1.0 differs from 1.00
    datetime: _moment,
    time: _moment,
}
