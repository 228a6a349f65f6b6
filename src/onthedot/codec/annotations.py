"""The codec of one annotated value, and the structs that a signature's annotations lead to.

A `ValueCodec` belongs to a parameter or the return value. It writes a value by the annotation if the value comes back
equal and of the same type; else in the tagged form if the annotation allows the value; else it refuses the value.
"""
# Values and annotations of any type are the subject here.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cached_property, partial
from pathlib import PurePath
from types import GenericAlias, NoneType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from onthedot.codec.tagged_json import (
    Classes,
    TooDeep,
    Unstorable,
    deep_equal,
    from_tagged,
    is_model,
    to_tagged,
    type_name,
)
from onthedot.codec.type_checks import UNIONS, check_type

_EXACT = (str, int, bool, NoneType)
_MAX_CACHED = 256
_BARE = (list, dict, tuple, set, frozenset)
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Absent:
    """The type of `ABSENT`: an argument that was not given. msgspec omits fields that hold their default."""


ABSENT: Any = Absent()


def _write_hook(value: Any) -> object:
    if isinstance(value, PurePath):
        return str(value)
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    raise NotImplementedError


def read_hook(kind: Any, value: Any) -> object:
    """Reads what msgspec does not know; NotImplementedError for other types."""
    if isinstance(kind, type) and issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    if isinstance(kind, type) and is_model(kind):
        return kind.model_validate(value)  # type: ignore[attr-defined]
    raise NotImplementedError


_encoder = msgspec.json.Encoder(enc_hook=_write_hook)
write: Callable[[Any], bytes] = _encoder.encode
write_into: Callable[[Any, bytearray], None] = _encoder.encode_into


def reader(kind: Any, hook: Callable[[Any, Any], object] = read_hook) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(kind, dec_hook=hook).decode


class ValueCodec:
    """The codec of one annotated value.

    >>> typed, raw = ValueCodec(list[int]).store([1, 2], 64)
    >>> typed, bytes(raw)
    (True, b'[1,2]')
    >>> ValueCodec(tuple[Any, ...]).store((1, 2), 64)
    (False, {'!tuple': [1, 2]})
    >>> ValueCodec(int).store("1", 64)
    Traceback (most recent call last):
    onthedot.codec.tagged_json.Unstorable: is of type str where int is declared; convert it or change the annotation
    """

    def __init__(self, annotation: object) -> None:
        self.annotation = annotation
        self.note = ""
        self.type: object = Any
        self.read: Callable[[bytes], Any] | None = None
        if not _is_open(annotation):
            with suppress(Exception):  # msgspec does not support every annotation; the tagged form needs none
                kind = _with_int_for_float(annotation)
                self.read = reader(kind)
                self.type = kind
        # Values of these types come back as they are (floats only if finite), so they need no round trip.
        self.exact: frozenset[type] = _exact(annotation)

    @classmethod
    def of(cls, parameter: inspect.Parameter, hints: Mapping[str, object]) -> ValueCodec:
        annotation: Any = hints.get(parameter.name, Any)
        if parameter.kind is parameter.VAR_POSITIONAL:
            annotation = GenericAlias(tuple, (annotation, ...))
        elif parameter.kind is parameter.VAR_KEYWORD:
            annotation = GenericAlias(dict, (str, annotation))
        codec = cls(annotation)
        if parameter.annotation is not parameter.empty and parameter.name not in hints:
            codec.note = f" (its annotation {parameter.annotation!r} names what the function's module does not have)"
        return codec

    @cached_property
    def classes(self) -> Classes:
        return _classes_in(self.annotation)

    def store(self, value: object, depth: int, checked: bool = True) -> tuple[bool, object]:
        """Whether the value is written by the annotation, and its form.

        `checked`: refuse a value that the annotation does not allow.
        """
        kind = type(value)
        if kind in self.exact and (kind is bool or value is None or (kind is str and value.isascii())):  # type: ignore[attr-defined]
            return self.read is not None, value
        try:
            if self.read is not None:
                with suppress(Exception):  # the tagged form is tried next
                    raw = write(value)
                    if deep_equal(value, self.read(raw), depth):
                        return True, msgspec.Raw(raw)
            if checked:
                check_type(self.annotation, value)
            tagged = to_tagged(value, self.classes, depth)
            if self.classes:  # these objects are rebuilt by the user's code, so only a round trip shows the result
                _check_round_trip(value, tagged, self.classes, depth)
        except RecursionError:
            raise TooDeep from None
        return False, tagged

    def load(self, tagged: object, path: str) -> Any:
        """The value of a tagged form. It is checked, since the annotation may have changed meanwhile."""
        if self.annotation is Any:
            return from_tagged(tagged)
        value = from_tagged(tagged, self.classes)
        self.check(value, path)
        return value

    def check(self, value: object, path: str) -> None:
        try:
            check_type(self.annotation, value)
        except Unstorable as error:
            raise ValueError(f"{error.path(path)} {error.text}") from None


class RoundTripCache(dict[tuple[type, ...], tuple[int, ...] | None]):
    """By the types of the arguments: the indexes of floats, which must be finite; None if the types prove nothing.

    >>> RoundTripCache([ValueCodec(str), ValueCodec(float)])[str, float]
    (1,)
    """

    def __init__(self, codecs: Sequence[ValueCodec]) -> None:
        super().__init__()
        self._exact = [codec.exact | {Absent} for codec in codecs]

    def __missing__(self, types: tuple[type, ...]) -> tuple[int, ...] | None:
        floats: tuple[int, ...] | None = None
        if all(kind in exact for kind, exact in zip(types, self._exact, strict=True)):
            floats = tuple(index for index, kind in enumerate(types) if kind is float)
        if len(self) < _MAX_CACHED:
            self[types] = floats
        return floats


def _check_round_trip(value: object, tagged: object, classes: Classes, depth: int) -> None:
    try:
        if deep_equal(value, from_tagged(tagged, classes), depth):
            return
        problem = "comes out different"
    except Exception as error:  # noqa: BLE001 - a class of the user's may raise anything
        problem = f"fails with {type_name(type(error))}: {str(error)[:200]}"
    raise Unstorable(
        f"is of type {type_name(type(value))}, and making it again from its fields {problem}; pass plain values"
    )


def _is_open(annotation: Any) -> bool:
    """Whether the annotation leaves a type open: Any, object, list without items, anything that contains these."""
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if annotation is Any or annotation is object or isinstance(annotation, TypeVar):
        return True
    if origin is Literal:
        return False
    if origin is Annotated:
        return _is_open(arguments[0])
    if not arguments:
        kind = origin or annotation
        return any(kind is bare for bare in _BARE) or getattr(kind, "__module__", "") == "collections.abc"
    return any(map(_is_open, arguments))


def _with_int_for_float(annotation: Any) -> Any:
    """With int wherever float is declared, as for type checkers: an int stays one."""
    origin: Any = get_origin(annotation)
    arguments = get_args(annotation)
    if annotation is float:
        return int | float
    if origin in UNIONS:
        union: Any = Union
        return union[tuple(map(_with_int_for_float, arguments))]
    if origin in (list, set, frozenset, tuple):
        return GenericAlias(origin, tuple(map(_with_int_for_float, arguments)))
    if origin is dict:
        return GenericAlias(dict, (arguments[0], _with_int_for_float(arguments[1])))
    return annotation


def _exact(annotation: Any) -> frozenset[type]:
    if annotation is Any or annotation is object:
        return frozenset({*_EXACT, float})
    options: tuple[Any, ...] = (annotation,)
    if get_origin(annotation) in UNIONS:
        options = get_args(annotation)
    exact: set[type] = {kind for kind in (*_EXACT, float) for option in options if kind is option}
    if not all(any(kind is option for kind in exact) for option in options):
        return frozenset()  # msgspec may prefer the other type
    if float in exact:
        exact.add(int)
    return frozenset(exact)


def _classes_in(annotation: object) -> Classes:
    """The classes that an annotation mentions, also through the fields of others."""
    found: dict[str, type | None] = {}
    seen: set[type] = set()
    parts: list[Any] = [annotation]
    while parts:
        part = parts.pop()
        parts += get_args(part)
        parts += [getattr(part, name) for name in ("__supertype__", "__value__") if hasattr(part, name)]
        kind = type(part) if isinstance(part, Enum) else get_origin(part) or part
        if not isinstance(kind, type) or kind in seen:
            continue
        seen.add(kind)
        if _is_record(kind):
            found[kind.__name__] = None if kind.__name__ in found else kind
        if found.get(kind.__name__) is kind or is_typeddict(kind):
            with suppress(Exception):  # a field of a type that cannot be resolved mentions nothing
                parts += get_type_hints(kind, include_extras=True).values()
    return found


def _is_record(kind: type) -> bool:
    return (
        issubclass(kind, Enum | msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or is_model(kind)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


def arguments_struct(
    parameters: list[inspect.Parameter], codecs: Mapping[str, ValueCodec], strict: bool
) -> type[msgspec.Struct]:
    """The arguments as a struct, which binds and decodes them in C. strict: required arguments must be present."""
    positional: list[Any] = []
    keyword_only: list[Any] = []
    for p in parameters:
        required = strict and p.default is inspect.Parameter.empty and p.kind not in VARIADIC
        kind = codecs[p.name].type
        field = (p.name, kind) if required else (p.name, kind, ABSENT)
        if p.kind in (p.KEYWORD_ONLY, *VARIADIC):
            keyword_only.append(field)
        else:
            positional.append(field)
    # Keyword-only fields must come from a base of their own.
    keywords = msgspec.defstruct("Keywords", keyword_only, kw_only=True, omit_defaults=True, forbid_unknown_fields=True)
    return msgspec.defstruct("Arguments", positional, bases=(keywords,))


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def hints_of(function: Any) -> dict[str, Any]:
    """The resolved annotations; an annotation with an unknown name is left out."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type):
        function = function.__init__  # type: ignore[misc]
    elif not inspect.isroutine(function):
        function = type(function).__call__
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation may be any expression
        return _hints_one_by_one(function)


def _hints_one_by_one(function: Any) -> dict[str, Any]:
    def probe() -> None: ...

    hints: dict[str, Any] = {}
    names = getattr(inspect.unwrap(function), "__globals__", {})
    with suppress(Exception):  # from 3.14 on, reading __annotations__ may fail as well
        for name, annotation in function.__annotations__.items():
            probe.__annotations__ = {name: annotation}
            with suppress(Exception):
                hints |= get_type_hints(probe, names, include_extras=True)
    return hints
