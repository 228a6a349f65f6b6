"""Payloads of events as plain JSON, without the tags of the task codec: other programs read them."""
# Values and annotations of any type are the subject here.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from math import isfinite
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec

from onthedot.codec.annotations import read_hook, reader, write
from onthedot.codec.tagged_json import MEMBER, TooDeep, Unstorable, fields_of, is_model, map_with_path, type_name
from onthedot.errors import ArgumentError, DeclarationError

_DEPTH = 64
_TEXT_TYPES = (date, time, timedelta, Decimal, UUID, bytes, bytearray, memoryview)  # datetime is a date
_BITS = 12_000  # Python reads no more than 4,300 digits


def plain_payload(payload: object, event: str) -> Any:
    """The payload made of dicts, lists, texts, numbers, booleans and None; ArgumentError with the path of a value.

    event: named in the error.

    >>> from datetime import UTC, datetime
    >>> plain_payload({"at": datetime(2026, 1, 31, tzinfo=UTC), "price": Decimal("1.50"), "sizes": (1, 2)}, "an event")
    {'at': '2026-01-31T00:00:00Z', 'price': '1.50', 'sizes': [1, 2]}
    >>> plain_payload({"items": [{"price": float("nan")}]}, "Shop.Order.Placed")
    Traceback (most recent call last):
    onthedot.errors.ArgumentError: payload of Shop.Order.Placed: $.items[0].price is nan, which is not JSON; pass None
    """
    try:
        return _plain(payload, _DEPTH)
    except Unstorable as error:
        raise ArgumentError(f"payload of {event}: {error.path()} {error.text}") from None


def encode_payload(payload: object, event: str) -> bytes:
    """The payload as JSON; ArgumentError with the path of a value that JSON has not.

    >>> encode_payload({"id": 17}, "Shop.Order.Placed")
    b'{"id":17}'
    """
    return write(plain_payload(payload, event))


@lru_cache(maxsize=1024)
def payload_reader(annotation: Any) -> Callable[[bytes], Any]:
    """How the annotation of a receiver decodes a payload. The function raises ValueError for one that does not fit.

    >>> payload_reader(dict[str, Decimal])(b'{"price":"1.50"}')
    {'price': Decimal('1.50')}
    >>> payload_reader(dict[str, int])(b'{"count":"3"}')
    Traceback (most recent call last):
    ValueError: the payload does not fit dict[str, int]: Expected `int`, got `str` - at `$[...]`
    """
    try:
        read = reader(annotation, _read_other)
    except Exception as error:  # noqa: BLE001 - msgspec does not support every annotation
        raise DeclarationError(f"a payload cannot be decoded as {type_name(annotation)}: {error}") from None

    def read_payload(data: bytes) -> Any:
        if not data:
            data = b"null"
        try:
            return read(data)
        except (ValueError, RecursionError) as error:
            what = f"does not fit {type_name(annotation)}"
            if not isinstance(error, msgspec.ValidationError):
                what = "is not JSON"
            raise ValueError(f"the payload {what}: {error}") from None

    return read_payload


def _read_other(kind: Any, value: Any) -> object:
    """For types that msgspec does not know. A class that cannot be read is found with the first value of it."""
    if kind is object:
        return value
    try:
        return read_hook(kind, value)
    except NotImplementedError:
        raise ValueError(f"{type_name(kind)} cannot be read from JSON; use a dataclass, a Struct or a model") from None


def _plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return _whole_number(value)
    if kind is float:
        if not isfinite(value):
            raise Unstorable(f"is {value!r}, which is not JSON; pass None")
        return value
    if depth <= 0:
        raise TooDeep
    if kind is dict:
        return _object(value, depth - 1)
    if kind is list or kind is tuple:
        return _array(enumerate(value), depth - 1)
    return _other(value, kind, depth - 1)


def _other(value: Any, kind: type, depth: int) -> Any:
    """Of types that JSON has not, and of classes that are derived from those that it has."""
    if isinstance(value, (Enum, str, int, float, PurePath, *_TEXT_TYPES)):
        return _scalar(value, depth)
    if isinstance(value, msgspec.Struct):  # msgspec knows its tag, the names of its fields and what it omits
        return _plain(msgspec.to_builtins(value, enc_hook=_unknown_to_msgspec), depth)
    if is_model(kind):
        return _plain(value.model_dump(mode="json", by_alias=True, round_trip=True), depth)
    if isinstance(value, Mapping):
        return _object(value, depth)
    if isinstance(value, list | tuple):
        return _array(enumerate(value), depth)
    if isinstance(value, set | frozenset):
        return _array(((MEMBER, member) for member in value), depth)
    if names := [name for name in fields_of(kind) if hasattr(value, name)]:
        return _object({name: getattr(value, name) for name in names}, depth)
    raise Unstorable(
        f"is of type {type_name(kind)}, which is not JSON; pass plain values, a dataclass, a Struct or a model"
    )


def _scalar(value: Any, depth: int) -> Any:
    if isinstance(value, Enum):
        return _plain(value.value, depth)
    if isinstance(value, str):
        return _text(str.__str__(value))
    if isinstance(value, int | float):
        base = int if isinstance(value, int) else float
        return _plain(base(value), depth)
    if isinstance(value, PurePath):
        return _text(str(value))
    return msgspec.to_builtins(value)


def _unknown_to_msgspec(value: Any) -> Any:
    """Of a field of a Struct."""
    return _plain(value, _DEPTH)


def _object(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    keys = [_key(key) for key in value]
    items = map_with_path(value.items(), lambda item: _plain(item, depth))
    return dict(zip(keys, items, strict=True))


def _key(key: Any) -> str:
    if isinstance(key, Enum) and isinstance(key.value, str):
        key = key.value
    if not isinstance(key, str):
        raise Unstorable(f"has a key of type {type_name(type(key))}; keys of JSON are texts, so pass str(key)")
    return _text(str.__str__(key))


def _array(pairs: Iterable[tuple[object, Any]], depth: int) -> list[Any]:
    return map_with_path(pairs, lambda item: _plain(item, depth))


def _whole_number(value: int) -> int:
    if value.bit_length() > _BITS:
        raise Unstorable(f"is a whole number of more than {_BITS:,} bits; pass it as text")
    return value


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Unstorable(
            f"has a lone surrogate at {error.start}, which is not JSON; decode it with errors='replace'"
        ) from None
    return value
