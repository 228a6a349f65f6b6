"""Results of other tasks as arguments, in their stored form, read by the annotation of the parameter.

``{"value": …}`` and ``{"open": …}`` are the result of one task, ``{}`` is None, and ``{"many": [{"value": …}, …]}`` are
the results of a group (`body` has the forms). Each element is read on its own: results of different functions may have
been written in different forms.
"""
# Values and annotations of any type are the subject here.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import count
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

from onthedot.codec.annotations import ABSENT, ValueCodec, write
from onthedot.codec.body import EMPTY_RESULT, StoredResult
from onthedot.codec.tagged_json import from_tagged, to_tagged
from onthedot.codec.task_failure import TaskFailure
from onthedot.codec.type_checks import UNIONS

_CLASSES: dict[str, type | None] = {"TaskFailure": TaskFailure}
_EXACT_CONTAINERS: tuple[type, ...] = (list, tuple, set, frozenset)


class _RawResult(Struct, forbid_unknown_fields=True):
    """A stored result whose parts are read later."""

    value: Raw = ABSENT
    open: Any = ABSENT
    many: Raw = ABSENT


_read = msgspec.json.Decoder(_RawResult).decode
_read_items = msgspec.json.Decoder(list[_RawResult]).decode
_split_items = msgspec.json.Decoder(list[Raw]).decode
_read_any = msgspec.json.Decoder(Any).decode


class ResultReader:
    """Reads and writes results for one annotation.

    >>> ResultReader(list[int | None]).read(b'{"many":[{"value":1},{},{"open":3}]}', "$.numbers")
    [1, None, 3]
    >>> ResultReader(tuple[int, bytes]).read(b'{"many":[{"value":1},{"open":{"!bytes":"YQ=="}}]}', "$.pair")
    (1, b'a')
    >>> ResultReader(int).read(b'{"open":"x"}', "$.number")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: $.number is of type str where int is declared; ...
    """

    def __init__(self, annotation: object) -> None:
        self._codec = ValueCodec(annotation)
        self._success = self._codec  # for values: msgspec does not read a union of two classes
        without = _without_failure(annotation)
        if without is not annotation:
            self._success = ValueCodec(without)

    def read(self, data: bytes | Raw, path: str) -> Any:
        """The value; ValueError if it does not fit the annotation."""
        return self._read_stored(_read(data), path)

    def _read_stored(self, stored: _RawResult, path: str, at: int | None = None) -> Any:
        """path: of the value, or of the list of which it is the element `at`."""
        if stored.value is ABSENT and stored.open is ABSENT and stored.many is ABSENT and self._takes_none:
            return None
        if stored.value is not ABSENT and self._success.read is not None:
            return self._success.read(bytes(stored.value))
        if at is not None:
            path = f"{path}[{at}]"
        if stored.many is not ABSENT:
            return self._read_many(_read_items(stored.many), path)
        if stored.open is not ABSENT:
            value = from_tagged(stored.open, {**self._codec.classes, **_CLASSES})
        elif stored.value is ABSENT:
            value = None
        else:
            value = _read_any(stored.value)
        self._codec.check(value, path)
        return value

    def _read_many(self, items: Sequence[_RawResult], path: str) -> object:
        make, readers, is_exact = self._container
        if len(readers) == 1:
            readers = [readers[0]] * len(items)
        if len(readers) != len(items):
            raise ValueError(f"{path} are {len(items)} results where {len(readers)} are declared")
        value = make(
            [reader._read_stored(item, path, at) for item, reader, at in zip(items, readers, count(), strict=False)]
        )
        if not is_exact:
            self._codec.check(value, path)
        return value

    @cached_property
    def _takes_none(self) -> bool:
        try:
            self._codec.check(None, "$")
        except ValueError:
            return False
        return True

    @cached_property
    def _container(self) -> tuple[Callable[[list[Any]], object], list[ResultReader], bool]:
        """How the results of a group become the argument, and a reader for all of them or one for each.

        The last is whether the annotation declares this very container: then nothing is left to check.
        """
        for option in _options(self._codec.annotation):
            kind = get_origin(option) or option
            arguments = get_args(option)
            is_exact = kind in _EXACT_CONTAINERS
            make: Callable[[list[Any]], object] = kind if is_exact else list
            if kind is tuple and arguments and arguments[-1] is not Ellipsis:
                return make, [ResultReader(argument) for argument in arguments], is_exact
            if arguments or make is not list:
                return make, [ResultReader(arguments[0] if arguments else Any)], is_exact
        return list, [ResultReader(Any)], False

    def store_item(self, value: object, index: int, depth: int) -> Raw:
        """A plain element of a list of results, in the form of a result."""
        _, readers, _ = self._container
        codec = readers[index if len(readers) > index else -1]._codec
        typed, form = codec.store(value, depth)
        return Raw(write(StoredResult(form) if typed else StoredResult(ABSENT, form)))


def load_untyped(data: bytes | Raw) -> object:
    """The value without an annotation: a group's results are a list."""
    return _load_untyped(_read(data))


def _load_untyped(stored: _RawResult) -> object:
    if stored.many is not ABSENT:
        return [_load_untyped(item) for item in _read_items(stored.many)]
    if stored.open is not ABSENT:
        return from_tagged(stored.open, _CLASSES)
    if stored.value is ABSENT:
        return None
    return _read_any(stored.value)


def store_many(items: Sequence[bytes | Raw]) -> bytes:
    """The results of a group as one.

    >>> store_many([b'{"value":1}', b""])
    b'{"many":[{"value":1},{}]}'
    """
    return write(StoredResult(many=[Raw(bytes(item) or EMPTY_RESULT) for item in items]))


def split_many(data: bytes) -> Sequence[bytes]:
    """The stored results of a group's members."""
    many = _read(data).many
    if many is ABSENT:
        raise ValueError("it is not the result of a group")
    return [b"" if bytes(item) == EMPTY_RESULT else bytes(item) for item in _split_items(many)]


def store_failure(failure: TaskFailure) -> bytes:
    """A failure in the place of a result."""
    return write(StoredResult(ABSENT, to_tagged(failure, _CLASSES, 8)))


def read_failure(data: bytes) -> TaskFailure | None:
    """The failure that was stored in the place of a result; None: it is a result."""
    if b'"!of":["TaskFailure"' not in data:
        return None
    value = load_untyped(data)
    if isinstance(value, TaskFailure):
        return value
    return None


def store_untyped_item(value: object, depth: int) -> Raw:
    """A plain element of a list of results, without an annotation."""
    return Raw(write(StoredResult(ABSENT, to_tagged(value, depth=depth))))


def _options(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, or the only one."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in UNIONS:
        return get_args(annotation)
    return (annotation,)


def _without_failure(annotation: Any) -> Any:
    options = _options(annotation)
    others = tuple(option for option in options if option is not TaskFailure)
    if len(others) == len(options) or not others:
        return annotation
    union: Any = Union
    return union[others]
