"""Whether a value fits an annotation."""
# Values and annotations of any type are the subject here.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from onthedot.codec.tagged_json import MEMBER, Unstorable, map_with_path, type_name

UNIONS = (Union, UnionType)


def check_type(annotation: Any, value: Any) -> None:
    """Unstorable unless a type checker would accept the value, as far as can be decided; fields are not checked.

    >>> check_type(list[float], [1, True, 2.5])
    >>> check_type(list[float], [1, "2"])
    Traceback (most recent call last):
    onthedot.codec.tagged_json.Unstorable: is of type str where float is declared; convert it or change the annotation
    """
    if annotation is Any or annotation is object:
        return
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        if any(isinstance(note, msgspec.Meta) for note in arguments[1:]):
            _check_constraints(annotation, value)
        check_type(arguments[0], value)
    elif origin in UNIONS:
        if not any(_fits(option, value) for option in arguments):
            raise _mismatch(annotation, value)
    elif origin is Literal:
        if not any(type(option) is type(value) and option == value for option in arguments):
            raise Unstorable(f"is not one of {', '.join(map(repr, arguments))}")
    elif isinstance(annotation, NewType):
        check_type(annotation.__supertype__, value)
    elif type(annotation).__name__ == "TypeAliasType":
        check_type(annotation.__value__, value)
    elif is_typeddict(origin or annotation):
        _check_typed_dict(origin or annotation, value)
    else:
        _check_class(NoneType if annotation is None else origin or annotation, arguments, value)


def _check_pair(pair: tuple[object, object]) -> None:
    check_type(*pair)


def _fits(annotation: object, value: object) -> bool:
    try:
        check_type(annotation, value)
    except Unstorable:
        return False
    return True


def _mismatch(annotation: object, value: object) -> Unstorable:
    found = type_name(type(value))
    return Unstorable(
        f"is of type {found} where {type_name(annotation)} is declared; convert it or change the annotation"
    )


def _check_constraints(annotation: Any, value: object) -> None:
    try:
        msgspec.convert(value, annotation)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the second: a text with a lone surrogate
        raise Unstorable(f"does not hold what is declared: {error}") from None


def _check_typed_dict(kind: Any, value: Any) -> None:
    if type(value) is not dict:
        raise _mismatch(kind, value)
    hints = get_type_hints(kind)
    with_extras = get_type_hints(kind, include_extras=True)
    for key in kind.__required_keys__:
        # Python counts NotRequired keys as required where annotations are strings.
        if key not in value and get_origin(with_extras[key]) is not NotRequired:
            raise Unstorable(f"is missing the key {key!r}")
    if any(key not in hints for key in value):
        raise Unstorable(f"has a key that is not in {kind.__name__}")
    map_with_path(((key, (hints[key], item)) for key, item in value.items()), _check_pair)


def _check_class(kind: Any, arguments: tuple[Any, ...], value: Any) -> None:
    if not isinstance(kind, type):
        return  # a TypeVar, or no type at all: nothing can be checked
    try:
        fits = isinstance(value, int | float if kind is float else kind)
    except TypeError:
        return  # a Protocol that does not support isinstance()
    if not fits:
        raise _mismatch(kind, value)
    if kind is tuple and arguments and arguments[-1] is not ...:
        if len(value) != len(arguments):
            raise Unstorable(f"has {len(value)} items where {len(arguments)} are declared")
        map_with_path(enumerate(zip(arguments, value, strict=True)), _check_pair)
    elif len(arguments) == 2 and isinstance(value, Mapping):
        map_with_path(((key, key) for key in value), partial(check_type, arguments[0]))
        map_with_path(value.items(), partial(check_type, arguments[1]))
    elif arguments and isinstance(value, Collection):
        steps: Iterable[tuple[object, Any]] = enumerate(value)
        if isinstance(value, set | frozenset):
            steps = ((MEMBER, item) for item in value)
        map_with_path(steps, partial(check_type, arguments[0]))
