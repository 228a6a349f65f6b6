"""What goes in comes out: a call's arguments and a task's result as JSON, and back.

A body is ``{"args": {…}, "open": {…}, "at": "…", "for": …, "label": "…", "meta": {…}}`` without what is not needed; a
result is ``{"value": …}``, ``{"open": …}``, or nothing at all for None. ``args`` and ``value`` are written and read by
the annotations. ``open`` and ``meta`` carry their types with them (`tags.py`): for parameters without an annotation or
with one that leaves types open, and for values that the annotation allows but would change (a tuple for ``Sequence``).

What is written was read back and compared before it leaves, except where its types prove that it comes back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, astuple

from onthedot.codec.annotations import (
    ABSENT,
    VARIADIC,
    RoundTripCache,
    ValueCodec,
    arguments_struct,
    hints_of,
    reader,
    signature_of,
    write,
    write_exact,
)
from onthedot.codec.tagged_json import Classes, TooDeep, Unstorable, from_tagged, to_tagged, type_name
from onthedot.errors import ArgumentError, DeclarationError

_EMPTY = inspect.Parameter.empty
_NOTHING = b"{}"  # the body of a call without arguments
_OPEN = b'{"open":'  # as whoever has no code writes it


class Undecodable(ValueError):
    """A body or result that cannot be read: damaged, not ours, or written for another signature."""


class ResultNotEncodable(ValueError):
    """A result that cannot be stored and come back as it is."""


@dataclass(frozen=True)
class Caps:
    """How much is stored at most: bytes of a body, bytes of a result, levels of nesting."""

    arguments: int = 1 << 20
    result: int = 8 << 20
    depth: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.depth <= 128:
            raise ValueError(f"depth must be from 1 to 128, so that it can be read back anywhere; not {self.depth}")


_DEFAULT_CAPS = Caps()


class Headers(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What travels with the arguments."""

    at: str | None = None
    scheduled_for: int | None = msgspec.field(default=None, name="for")
    label: str = ""
    metadata: dict[str, Any] | None = msgspec.field(default=None, name="meta")


NO_HEADERS = Headers()


class _Body(Headers, frozen=True):
    """A body as it is written, or read where there is no signature."""

    args: Any = ABSENT
    open: Any = ABSENT


class _Result(Struct, omit_defaults=True, forbid_unknown_fields=True):
    value: Any = ABSENT
    open: Any = ABSENT


_read_body = reader(_Body)
_read_result = reader(_Result)


class _SignatureCodec:
    """What follows from the annotations, once they are resolved."""

    def __init__(self, signature: inspect.Signature, hints: Mapping[str, object]) -> None:
        parameters = list(signature.parameters.values())
        self.slots = {p.name: ValueCodec.of(p, hints) for p in parameters}
        self.result = ValueCodec(hints.get("return", Any))
        self.bound = arguments_struct(parameters, self.slots, strict=True)
        self.optional = [p.name for p in parameters if p.default is not _EMPTY or p.kind in VARIADIC]
        self.read_any = _body_reader(arguments_struct(parameters, self.slots, strict=False), strict=False)
        self.read_result = reader(msgspec.defstruct("Result", [("value", self.result.type, ABSENT)], bases=(_Result,)))
        typed = {slot.read is not None for slot in self.slots.values()}
        # Of both kinds, the arguments belong into two objects: then each goes its own way.
        self.mixed, self.open = len(typed) == 2, typed == {False}
        self.read = None if False in typed else _body_reader(self.bound, strict=True)
        self.proofs = RoundTripCache([self.slots[name] for name in self.bound.__struct_fields__])


class FunctionCodec:
    """Writes the calls and the results of one function, and reads them.

    >>> def send(to: str, body: str = "", *, copies=()) -> int: ...
    >>> codec = FunctionCodec(send, "send")
    >>> codec.encode(("a@b.c",), {"copies": ("x", "y")})
    b'{"args":{"to":"a@b.c"},"open":{"copies":{"!tuple":["x","y"]}}}'
    >>> codec.decode(codec.encode(("a@b.c",), {"copies": ("x", "y")}))[0]
    {'to': 'a@b.c', 'copies': ('x', 'y')}
    >>> codec.encode((), {"to": 5})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    onthedot.errors.ArgumentError: send: argument 'to' cannot be stored: $.to is of type int where str is declared; ...
    >>> codec.decode_result(codec.encode_result(3))
    3
    """

    def __init__(self, function: Callable[..., object], name: str, caps: Caps = _DEFAULT_CAPS) -> None:
        self.function = function
        self.name = name
        self.caps = caps
        try:
            self._signature = signature_of(function)
        except (TypeError, ValueError) as error:
            raise DeclarationError(f"{name}: {error}; wrap it in a function with named parameters") from None
        parameters = self._signature.parameters.values()
        self.parameters: tuple[str, ...] = tuple(p.name for p in parameters)
        self.required: tuple[str, ...] = tuple(
            p.name for p in parameters if p.default is _EMPTY and p.kind not in VARIADIC
        )
        self._by_name = not any(p.kind in VARIADIC or p.kind is p.POSITIONAL_ONLY for p in parameters)
        self._others = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
        self._plan: _SignatureCodec | None = None

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The given arguments by name, without defaults; ArgumentError if the function would not take them."""
        try:
            if self._by_name:
                return _given((self._plan or self._resolve()).bound(*args, **kwargs))
        except TypeError:
            pass  # Python's own words are better
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            told = f"{error}{self._nearest(kwargs, str(error))}"
            raise ArgumentError(f"{self.name}(): {told}; its signature is {self.name}{self._signature}") from None

    def _nearest(self, kwargs: Mapping[str, object], told: str) -> str:
        for keyword in kwargs:
            if keyword not in self.parameters and (close := get_close_matches(keyword, self.parameters, n=1)):
                wrong = "" if repr(keyword) in told else f"{keyword!r}: "  # Python tells of what is missing first
                return f" ({wrong}did you mean {close[0]!r}?)"
        return ""

    def encode(self, args: tuple[object, ...], kwargs: Mapping[str, object], headers: Headers = NO_HEADERS) -> bytes:
        """The body of a call; ArgumentError if it would not come back equal and of the same types."""
        plan = self._plan or self._resolve()
        if not self._by_name:
            return self._encode_each(plan, self.bind(args, kwargs), headers)
        try:
            given = plan.bound(*args, **kwargs)
        except TypeError:
            given = plan.bound(**self.bind(args, kwargs))  # says what is wrong
        values = astuple(given)
        floats = plan.proofs[tuple(map(type, values))]
        if floats is not None and headers is NO_HEADERS and not plan.mixed and (args or kwargs):
            try:
                body = write_exact(_Body(ABSENT, given) if plan.open else _Body(given))
                if len(body) <= self.caps.arguments and (not floats or all(isfinite(values[at]) for at in floats)):
                    return body
            except ValueError:
                pass  # a lone surrogate, or an integer too long for decimal digits
        return self._encode_each(plan, _given(given), headers)

    def _encode_each(self, plan: _SignatureCodec, given: Mapping[str, object], headers: Headers) -> bytes:
        typed: dict[str, object] = {}
        tagged: dict[str, object] = {}
        for name, value in given.items():
            try:
                by_annotation, form = plan.slots[name].store(value, self.caps.depth)
            except Unstorable as error:
                error.text += plan.slots[name].note
                raise _refusal(self.name, f"argument {name!r}", error.path(f"$.{name}"), error, self.caps) from None
            (typed if by_annotation else tagged)[name] = form
        return _finish(self.name, typed, tagged, headers, self.caps)

    def decode(self, body: bytes) -> tuple[dict[str, object], Headers]:
        """The arguments by name and what travels with them; Undecodable for anything that `encode` does not write."""
        if body == _NOTHING and not self.required:
            return {}, NO_HEADERS
        plan = self._plan or self._resolve()
        if plan.read is None or body.startswith(_OPEN):
            return self._decode_each(plan, body)
        try:
            given = asdict(plan.read(body).args)
            if ABSENT in given.values():
                for name in plan.optional:
                    if given[name] is ABSENT:
                        del given[name]
            return given, NO_HEADERS
        except Exception:  # noqa: BLE001 - it has headers or open arguments, or is wrong: the long way says it
            return self._decode_each(plan, body)

    def _decode_each(self, plan: _SignatureCodec, body: bytes) -> tuple[dict[str, object], Headers]:
        try:
            stored = plan.read_any(body)
            given = self._load(plan.slots, _given(stored.args), stored.open)
            return given, _headers(stored)
        except Exception as error:
            raise Undecodable(f"{self.name}: the stored arguments cannot be read: {error}") from error

    def _load(
        self, slots: Mapping[str, ValueCodec], given: dict[str, Any], tagged: Mapping[str, object]
    ) -> dict[str, object]:
        for name, value in given.items():
            if slots[name].read is None:
                slots[name].check(value, f"$.args.{name}")
        others: dict[str, object] = {}
        for name, value in tagged.items():
            if name in slots:
                given[name] = slots[name].load(value, f"$.open.{name}")
            elif self._others is None:
                raise ValueError(f"unknown argument {name!r}")
            else:
                others[name] = value
        if self._others is not None and others:
            given[self._others] = given.get(self._others, {}) | slots[self._others].load(others, "$.open")
        if missing := [name for name in self.required if name not in given]:
            raise ValueError(f"argument {missing[0]!r} is missing")
        return given

    def call(self, arguments: dict[str, object]) -> object:
        """Calls the function with decoded arguments."""
        if self._by_name:
            return self.function(**arguments)
        bound = inspect.BoundArguments(self._signature, arguments)
        return self.function(*bound.args, **bound.kwargs)

    def encode_result(self, value: object) -> bytes:
        """ResultNotEncodable if it would not come back. What the return annotation does not allow is stored open."""
        return _write_result(value, (self._plan or self._resolve()).result, self.caps, self.name)

    def decode_result(self, data: bytes) -> object:
        plan = self._plan or self._resolve()
        return _load_result(data, plan.read_result, plan.result.classes)

    def _resolve(self) -> _SignatureCodec:
        # At the first use and not at the declaration: annotations may name what is defined further down.
        self._plan = plan = _SignatureCodec(self._signature, hints_of(self.function))
        return plan


def encode_untyped(
    args: Mapping[str, object], headers: Headers = NO_HEADERS, caps: Caps = _DEFAULT_CAPS, name: str = "task"
) -> bytes:
    """A body for arguments without a signature.

    >>> encode_open({"to": "a@b.c", "at": (1, 2)})
    b'{"open":{"to":"a@b.c","at":{"!tuple":[1,2]}}}'
    >>> decode_open(encode_open({"to": "a@b.c", "at": (1, 2)}))[0]
    {'to': 'a@b.c', 'at': (1, 2)}
    """
    if not isinstance(args, Mapping):
        raise ArgumentError(f"{name}: the arguments are of type {type_name(type(args))}; pass a dict")
    try:
        tagged = to_tagged(dict(args), depth=caps.depth + 1)
    except Unstorable as error:
        what = f"argument {error.steps[-1]!r}" if error.steps and type(error.steps[-1]) is str else "the arguments"
        raise _refusal(name, what, error.path(), error, caps) from None
    return _finish(name, {}, tagged, headers, caps)


def decode_untyped(body: bytes) -> tuple[dict[str, object], Headers]:
    """Any body, without its code: what an annotation would have to read comes as plain JSON."""
    try:
        stored = _read_body(body)
        given = {} if stored.args is ABSENT else dict(stored.args)
        if stored.open is not ABSENT:
            given |= from_tagged(stored.open, None)
        return given, _headers(stored)
    except Exception as error:
        raise Undecodable(f"the stored arguments cannot be read: {error}") from error


def encode_open_result(value: object, caps: Caps = _DEFAULT_CAPS) -> bytes:
    """
    >>> decode_open_result(encode_open_result({1, 2}))
    {1, 2}
    """
    return _write_result(value, _ANYTHING, caps, "task")


def decode_open_result(data: bytes) -> object:
    return _load_result(data, _read_result, None)


_ANYTHING = ValueCodec(Any)


def _write_result(value: object, slot: ValueCodec, caps: Caps, name: str) -> bytes:
    if value is None:
        return b""
    if type(value) in slot.exact and (type(value) is not float or isfinite(value)):
        typed, form = slot.read is not None, value
    else:
        typed, form = _stored_result(value, slot, caps, name)
    try:
        data = write(_Result(form) if typed else _Result(ABSENT, form))
    except ValueError:  # a lone surrogate, or an integer too long for decimal digits
        data = write(_Result(ABSENT, _stored_result(value, slot, caps, name)[1]))
    if len(data) > caps.result:
        raise ResultNotEncodable(
            f"{name}: the result takes {len(data):,} bytes, the limit is {caps.result:,}; "
            "keep it elsewhere and return where it is"
        )
    return data


def _stored_result(value: object, slot: ValueCodec, caps: Caps, name: str) -> tuple[bool, object]:
    try:
        return slot.store(value, caps.depth, checked=False)
    except Unstorable as error:
        raise ResultNotEncodable(str(_refusal(name, "the result", error.path(), error, caps))) from None


def _load_result(data: bytes, read: Callable[[bytes], Any], classes: Classes | None) -> object:
    if not data:
        return None
    try:
        stored = read(data)
        value = stored.value if stored.open is ABSENT else from_tagged(stored.open, classes)
    except Exception as error:
        raise Undecodable(f"the stored result cannot be read: {error}") from error
    if value is ABSENT:
        raise Undecodable("the stored result cannot be read: it has no value")
    return value


def _body_reader(arguments: type[Struct], strict: bool) -> Callable[[bytes], Any]:
    fields: list[Any] = [("args", arguments)]
    if not any(field.required for field in msgspec.structs.fields(arguments)):
        fields = [("args", arguments, msgspec.field(default_factory=arguments))]
    if strict:  # nothing but typed arguments: the usual body
        return reader(msgspec.defstruct("Body", fields, forbid_unknown_fields=True))
    fields.append(("open", dict[str, Any], msgspec.field(default_factory=dict)))
    return reader(msgspec.defstruct("Body", fields, bases=(Headers,)))


def _given(arguments: Struct) -> dict[str, Any]:
    return {name: value for name, value in asdict(arguments).items() if value is not ABSENT}


def _headers(stored: Any) -> Headers:
    metadata: dict[str, Any] | None = None if stored.metadata is None else from_tagged(stored.metadata)
    if not isinstance(metadata, dict | None):
        raise TypeError("the metadata is no object")
    headers = Headers(at=stored.at, scheduled_for=stored.scheduled_for, label=stored.label, metadata=metadata)
    return NO_HEADERS if headers == NO_HEADERS else headers


def _finish(name: str, typed: dict[str, object], tagged: Any, headers: Headers, caps: Caps) -> bytes:
    body = _Body(typed or ABSENT, tagged or ABSENT)
    if headers is not NO_HEADERS:
        body = _headed(body, headers, name, caps)
    written = write(body)
    if len(written) > caps.arguments:
        sizes = {argument: len(write(form)) for argument, form in (typed | tagged).items()}
        largest = f" (most in {max(sizes, key=lambda argument: sizes[argument])!r})" if sizes else ""
        raise ArgumentError(
            f"{name}: the arguments take {len(written):,} bytes{largest}, the limit is {caps.arguments:,}; "
            "keep large data elsewhere and pass where it is"
        )
    return written


def _headed(body: _Body, headers: Headers, name: str, caps: Caps) -> _Body:
    what, metadata = "label", headers.metadata
    try:
        label = str(to_tagged(headers.label))
        what = "metadata"
        if metadata is not None:
            metadata = cast("dict[str, Any]", to_tagged(metadata, depth=caps.depth + 1))
    except Unstorable as error:
        raise _refusal(name, f"its {what}", error.path(f"$.{what}"), error, caps) from None
    return _Body(
        body.args, body.open, at=headers.at, scheduled_for=headers.scheduled_for, label=label, metadata=metadata
    )


def _refusal(name: str, what: str, path: str, error: Unstorable, caps: Caps) -> ArgumentError:
    text = f"{path} {error.text}"
    if isinstance(error, TooDeep):
        text = f"it is {caps.depth + 1} levels deep or contains itself, the limit is {caps.depth}; pass flatter data"
    return ArgumentError(f"{name}: {what} cannot be stored: {text}")
