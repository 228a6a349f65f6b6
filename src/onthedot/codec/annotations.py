"""What a signature's annotations say about the values that are stored.

A `Slot` is one annotated place, a parameter or the return value. It writes a value by the annotation if it comes back
equal and of the same type, else in the open form if the annotation allows the value, else it refuses it.
"""
# Values and annotations of any type are the subject here.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cached_property, partial
from pathlib import PurePath
from types import GenericAlias, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    NotRequired,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from onthedot.codec.tagged_json import (
    MEMBER,
    Classes,
    TooDeep,
    Unstorable,
    deep_equal,
    from_tagged,
    is_model,
    map_with_path,
    to_tagged,
    type_name,
)

_UNIONS = (Union, UnionType)
_EXACT = (str, int, bool, NoneType)
_PROOFS_KEPT = 256
_BARE = (list, dict, tuple, set, frozenset)
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Absent:
    """What was not given. msgspec leaves a field out that holds its default, and no caller has this one."""


ABSENT: Any = Absent()


def _write_hook(value: Any) -> object:
    if isinstance(value, PurePath):
        return str(value)
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    raise NotImplementedError


def _read_hook(kind: Any, value: Any) -> object:
    if isinstance(kind, type) and issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    if isinstance(kind, type) and is_model(kind):
        return kind.model_validate(value)  # type: ignore[attr-defined]
    raise NotImplementedError


_encoder = msgspec.json.Encoder(enc_hook=_write_hook)
write: Callable[[Any], bytes] = _encoder.encode


def write_exact(value: object) -> bytes:
    """As `write`, without the spare room that it leaves behind: for what is kept, a million times."""
    buffer = bytearray()
    _encoder.encode_into(value, buffer)
    return bytes(buffer)


def reader(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(kind, dec_hook=_read_hook).decode


class ValueCodec:
    """One annotated place.

    >>> typed, raw = Slot(list[int]).store([1, 2], 64)
    >>> typed, bytes(raw)
    (True, b'[1,2]')
    >>> Slot(tuple[Any, ...]).store((1, 2), 64)
    (False, {'!tuple': [1, 2]})
    >>> Slot(int).store("1", 64)
    Traceback (most recent call last):
    onthedot.tags.Unstorable: is of type str where int is declared; convert it or change the annotation
    """

    def __init__(self, annotation: object) -> None:
        self.annotation = annotation
        self.note = ""
        self.type: object = Any
        self.read: Callable[[bytes], Any] | None = None
        if not _is_open(annotation):
            with suppress(Exception):  # msgspec cannot build every annotation; the open form does without
                self.type, self.read = _with_int_for_float(annotation), reader(_with_int_for_float(annotation))
        # The types whose values come back as they are, floats only if finite: known without trying.
        self.exact: frozenset[type] = _exact(annotation)

    @classmethod
    def of(cls, parameter: inspect.Parameter, hints: Mapping[str, object]) -> ValueCodec:
        annotation: Any = hints.get(parameter.name, Any)
        if parameter.kind is parameter.VAR_POSITIONAL:
            annotation = GenericAlias(tuple, (annotation, ...))
        elif parameter.kind is parameter.VAR_KEYWORD:
            annotation = GenericAlias(dict, (str, annotation))
        slot = cls(annotation)
        if parameter.annotation is not parameter.empty and parameter.name not in hints:
            slot.note = f" (its annotation {parameter.annotation!r} names what the function's module does not have)"
        return slot

    @cached_property
    def classes(self) -> Classes:
        return _classes_in(self.annotation)

    def store(self, value: object, depth: int, checked: bool = True) -> tuple[bool, object]:
        """Whether it is written by the annotation, and what is written; `checked`: only if the annotation allows it."""
        kind = type(value)
        if kind in self.exact and (kind is bool or value is None or (kind is str and value.isascii())):  # type: ignore[attr-defined]
            return self.read is not None, value
        try:
            if self.read is not None:
                with suppress(Exception):  # whatever went wrong, it is judged below
                    raw = write(value)
                    if deep_equal(value, self.read(raw), depth):
                        return True, msgspec.Raw(raw)
            if checked:
                check_type(self.annotation, value)
            tagged = to_tagged(value, self.classes, depth)
            if self.classes:  # their own code makes these objects again, so only trying tells
                _try_back(value, tagged, self.classes, depth)
        except RecursionError:
            raise TooDeep from None
        return False, tagged

    def load(self, tagged: object, path: str) -> Any:
        """What was stored open. It must fit here, too: the annotation may be another one by now."""
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
    """By the types of the arguments: the places of floats, which must be finite; None if the types prove nothing.

    >>> Proofs([Slot(str), Slot(float)])[str, float]
    (1,)
    """

    def __init__(self, slots: Sequence[ValueCodec]) -> None:
        super().__init__()
        self._exact = [slot.exact | {Absent} for slot in slots]

    def __missing__(self, types: tuple[type, ...]) -> tuple[int, ...] | None:
        floats: tuple[int, ...] | None = None
        if all(kind in exact for kind, exact in zip(types, self._exact, strict=True)):
            floats = tuple(place for place, kind in enumerate(types) if kind is float)
        if len(self) < _PROOFS_KEPT:
            self[types] = floats
        return floats


def _try_back(value: object, tagged: object, classes: Classes, depth: int) -> None:
    try:
        reason = "" if deep_equal(value, from_tagged(tagged, classes), depth) else "comes out different"
    except Exception as error:  # noqa: BLE001 - a class of the user's may raise anything
        reason = f"fails with {type_name(type(error))}: {str(error)[:200]}"
    if reason:
        raise Unstorable(
            f"is of type {type_name(type(value))}, and making it again from its fields {reason}; pass plain values"
        )


def check_type(annotation: Any, value: Any) -> None:
    """Unstorable unless a type checker would take the value, as far as this can be told; classes are not looked into.

    >>> fit(list[float], [1, True, 2.5])
    >>> fit(list[float], [1, "2"])
    Traceback (most recent call last):
    onthedot.tags.Unstorable: is of type str where float is declared; convert it or change the annotation
    """
    if annotation is Any or annotation is object:
        return
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        if any(isinstance(note, msgspec.Meta) for note in arguments[1:]):
            _fit_constraints(annotation, value)
        check_type(arguments[0], value)
    elif origin in _UNIONS:
        if not any(_fits(option, value) for option in arguments):
            raise _misfit(annotation, value)
    elif origin is Literal:
        if not any(type(option) is type(value) and option == value for option in arguments):
            raise Unstorable(f"is not one of {', '.join(map(repr, arguments))}")
    elif isinstance(annotation, NewType):
        check_type(annotation.__supertype__, value)
    elif type(annotation).__name__ == "TypeAliasType":
        check_type(annotation.__value__, value)
    elif is_typeddict(origin or annotation):
        _fit_typed_dict(origin or annotation, value)
    else:
        _fit_class(NoneType if annotation is None else origin or annotation, arguments, value)


def _fit_pair(pair: tuple[object, object]) -> None:
    check_type(*pair)


def _fits(annotation: object, value: object) -> bool:
    try:
        check_type(annotation, value)
    except Unstorable:
        return False
    return True


def _misfit(annotation: object, value: object) -> Unstorable:
    found, declared = type_name(type(value)), type_name(annotation)
    return Unstorable(f"is of type {found} where {declared} is declared; convert it or change the annotation")


def _fit_constraints(annotation: Any, value: object) -> None:
    try:
        msgspec.convert(value, annotation)
    except msgspec.ValidationError as error:
        raise Unstorable(f"does not hold what is declared: {error}") from None


def _fit_typed_dict(kind: Any, value: Any) -> None:
    if type(value) is not dict:
        raise _misfit(kind, value)
    hints, written = get_type_hints(kind), get_type_hints(kind, include_extras=True)
    for key in kind.__required_keys__:
        # Python takes NotRequired for required where annotations are strings.
        if key not in value and get_origin(written[key]) is not NotRequired:
            raise Unstorable(f"is missing the key {key!r}")
    if any(key not in hints for key in value):
        raise Unstorable(f"has a key that is not in {kind.__name__}")
    map_with_path(((key, (hints[key], item)) for key, item in value.items()), _fit_pair)


def _fit_class(kind: Any, arguments: tuple[Any, ...], value: Any) -> None:
    if not isinstance(kind, type):
        return  # a TypeVar, or something that is no type at all: nothing is known
    try:
        fits = isinstance(value, int | float if kind is float else kind)
    except TypeError:
        return  # a Protocol that cannot be asked
    if not fits:
        raise _misfit(kind, value)
    if kind is tuple and arguments and arguments[-1] is not ...:
        if len(value) != len(arguments):
            raise Unstorable(f"has {len(value)} items where {len(arguments)} are declared")
        map_with_path(enumerate(zip(arguments, value, strict=True)), _fit_pair)
    elif len(arguments) == 2 and isinstance(value, Mapping):
        map_with_path(((key, key) for key in value), partial(check_type, arguments[0]))
        map_with_path(value.items(), partial(check_type, arguments[1]))
    elif arguments and isinstance(value, Collection):
        steps = ((MEMBER, item) for item in value) if isinstance(value, set | frozenset) else enumerate(value)
        map_with_path(steps, partial(check_type, arguments[0]))


def _is_open(annotation: Any) -> bool:
    """Whether the annotation leaves a type open: Any, object, list without items, anything that contains these."""
    origin, arguments = get_origin(annotation), get_args(annotation)
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
    if origin in _UNIONS:
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
    options = get_args(annotation) if get_origin(annotation) in _UNIONS else (annotation,)
    exact: set[type] = {kind for kind in (*_EXACT, float) for option in options if kind is option}
    if float in exact:
        exact.add(int)
    # A type that only trying tells about makes the others uncertain: msgspec may prefer it.
    return frozenset(exact) if all(any(kind is option for kind in exact) for option in options) else frozenset()


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
    parameters: list[inspect.Parameter], slots: Mapping[str, ValueCodec], strict: bool
) -> type[msgspec.Struct]:
    """The arguments as a struct: it binds them in C, and reads them; strict: what is required must be there."""
    fields: tuple[list[Any], list[Any]] = ([], [])
    for p in parameters:
        needed = strict and p.default is inspect.Parameter.empty and p.kind not in VARIADIC
        field = (p.name, slots[p.name].type) if needed else (p.name, slots[p.name].type, ABSENT)
        fields[p.kind in (p.KEYWORD_ONLY, *VARIADIC)].append(field)
    # Fields that only a keyword may fill must come from a base of their own.
    keywords = msgspec.defstruct("Keywords", fields[True], kw_only=True, omit_defaults=True, forbid_unknown_fields=True)
    return msgspec.defstruct("Arguments", fields[False], bases=(keywords,))


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def hints_of(function: Any) -> dict[str, Any]:
    """The annotations, resolved; an annotation with a name that is not to be found is left out."""
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
    with suppress(Exception):  # from 3.14 on, asking for the annotations may fail as well
        for name, annotation in function.__annotations__.items():
            probe.__annotations__ = {name: annotation}
            with suppress(Exception):
                hints |= get_type_hints(probe, names, include_extras=True)
    return hints
