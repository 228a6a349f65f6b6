"""Values of one annotation that are stored by themselves: results of steps, payloads of signals."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import msgspec

from onthedot.codec.annotations import ABSENT, ValueCodec, hints_of, reader, write
from onthedot.codec.body import Caps, StoredResult, Undecodable, load_result, write_result

_MAX_CACHED = 1024
_SAME_IN_JSON = frozenset({"int", "str", "bool", "float", "None"})  # read without an annotation, they are the same


class ResultCodec:
    """Encodes and decodes values of one annotation.

    >>> codec = ResultCodec(list[int])
    >>> codec.decode(codec.encode([1, 2], Caps(), "sum"), "list[int]")
    [1, 2]
    """

    def __init__(self, annotation: object) -> None:
        self._value = ValueCodec(annotation)
        value = ("value", self._value.type, ABSENT)
        self._read = reader(msgspec.defstruct("TypedResult", [value], bases=(StoredResult,)))
        self.text: str = "" if annotation is Any else inspect.formatannotation(annotation)

    def encode(self, value: object, caps: Caps, name: str) -> bytes:
        """Raises ResultNotEncodable, which names `name`."""
        return write_result(value, self._value, caps, name)

    def decode(self, data: bytes, written_as: str) -> Any:
        """written_as: `text` of the codec that has written the value. Raises Undecodable.

        A value of another annotation must fit this one. One of the same annotation is taken as it was: a function may
        return what its annotation does not allow.
        """
        if written_as == self.text:
            return load_result(data, self._read, self._value.classes)
        if self._value.annotation is Any and written_as not in _SAME_IN_JSON:
            raise Undecodable(f"it is of type {written_as}, and nothing declares that type any more")
        value = load_result(data, self._read, self._value.classes)
        try:
            self._value.check(value, "$")
        except ValueError as error:
            raise Undecodable(str(error)) from None
        return value

    def convert(self, data: bytes) -> Any:
        """Reads what was written by another annotation or none: a dict may become a dataclass. Raises Undecodable."""
        if self._value.annotation is Any:
            return load_result(data, self._read, None)
        try:
            plain = _ANY.decode(data, "")
        except Undecodable:
            return load_result(data, self._read, self._value.classes)
        try:
            self._value.check(plain, "$")
        except ValueError:
            return self._from_json(plain)
        return plain

    def _from_json(self, plain: object) -> Any:
        read = self._value.read
        if read is None:
            raise Undecodable(f"it is of type {type(plain).__name__} where {self.text} is declared")
        try:
            return read(write(plain))
        except Exception as error:
            raise Undecodable(str(error)) from error


_ANY = ResultCodec(Any)
_by_text: dict[tuple[str, str], ResultCodec] = {}  # by module and text of the annotation


def result_codec(function: Callable[..., object]) -> ResultCodec:
    """The codec for the results of a function, by its annotation."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type):
        return codec_of(function)
    try:
        annotation = getattr(function, "__annotations__", {}).get("return", Any)
    except Exception:  # noqa: BLE001 - since Python 3.14 a name in it may be unknown
        annotation = hints_of(function).get("return", Any)
    if annotation is Any:
        return _ANY
    if isinstance(annotation, str):
        return _resolved(function, annotation)
    return codec_of(annotation)


def codec_of(annotation: object) -> ResultCodec:
    """The codec of an annotation; one codec for all equal ones, if it can be hashed."""
    try:
        return _cached(annotation)
    except TypeError:
        return ResultCodec(annotation)


def payload_codec(payload: object) -> ResultCodec:
    """For a value without an annotation: a dataclass or a model is written by its own class."""
    if ValueCodec(type(payload)).classes:
        return codec_of(type(payload))
    return _ANY


def _resolved(function: Callable[..., object], annotation: str) -> ResultCodec:
    """A text means the same everywhere in its module, and resolving it takes long."""
    key = (function.__module__, annotation)
    codec = _by_text.get(key)
    if codec is None:
        codec = codec_of(hints_of(function).get("return", Any))
        if len(_by_text) < _MAX_CACHED:
            _by_text[key] = codec
    return codec


@lru_cache(_MAX_CACHED)
def _cached(annotation: object) -> ResultCodec:
    return ResultCodec(annotation)
