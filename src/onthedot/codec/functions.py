"""The codec of one function: the arguments of its calls and its results as JSON, and back (`body` has the format)."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from math import isfinite
from typing import Any, get_args, get_origin

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
    write_into,
)
from onthedot.codec.body import (
    DEFAULT_CAPS,
    NO_HEADERS,
    Caps,
    Headers,
    Inputs,
    StoredBody,
    StoredResult,
    Undecodable,
    load_result,
    refusal,
    to_headers,
    write_body,
    write_result,
)
from onthedot.codec.results import ResultReader
from onthedot.codec.tagged_json import Unstorable
from onthedot.errors import ArgumentError, DeclarationError

_EMPTY = inspect.Parameter.empty
_NO_ARGUMENTS = b"{}"  # the body of a call without arguments
_BODY_PATH = re.compile(r"\$\.(?:args|open)\.(\w+)")  # in an error of msgspec
_UNTYPED = b'{"open":'  # how a body begins that was written without a signature


class _SignatureCodec:
    """The codecs of a signature, once its annotations are resolved."""

    def __init__(self, signature: inspect.Signature, hints: Mapping[str, object], *, is_stream: bool = False) -> None:
        parameters = list(signature.parameters.values())
        self.values = {p.name: ValueCodec.of(p, hints) for p in parameters}
        returned = hints.get("return", Any)
        self.result = ValueCodec(_item_annotation(returned) if is_stream else returned)
        self.bound = arguments_struct(parameters, self.values, strict=True)
        self.optional = [p.name for p in parameters if p.default is not _EMPTY or p.kind in VARIADIC]
        self.read_any = _body_reader(arguments_struct(parameters, self.values, strict=False), strict=False)
        value = ("value", self.result.type, ABSENT)
        self.read_result = reader(msgspec.defstruct("TypedResult", [value], bases=(StoredResult,)))
        typed = {codec.read is not None for codec in self.values.values()}
        self.mixed = len(typed) == 2  # typed and untyped arguments belong into two objects
        self.untyped = typed == {False}
        self.read: Callable[[bytes], Any] | None = None
        if False not in typed:
            self.read = _body_reader(self.bound, strict=True)
        self.round_trips = RoundTripCache([self.values[name] for name in self.bound.__struct_fields__])
        self._result_readers: dict[str, ResultReader] = {}

    def result_reader(self, name: str) -> ResultReader:
        """For an argument that is the result of another task."""
        known = self._result_readers.get(name)
        if known is None:
            known = self._result_readers[name] = ResultReader(self.values[name].annotation)
        return known

    def read_results(self, results: Mapping[str, msgspec.Raw]) -> dict[str, object]:
        given: dict[str, object] = {}
        for name, data in results.items():
            try:
                given[name] = self.result_reader(name).read(data, f"$.{name}")
            except Exception as error:
                raise _BadArgument(name, str(error)) from error
        return given


class FunctionCodec:
    """Encodes and decodes the calls and the results of one function.

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

    def __init__(
        self, function: Callable[..., object], name: str, caps: Caps = DEFAULT_CAPS, *, is_stream: bool = False
    ) -> None:
        """is_stream: it is an async generator, and its results are items."""
        self.function = function
        self.name = name
        self.caps = caps
        self._is_stream = is_stream
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
        self._var_keyword = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
        self._resolved: _SignatureCodec | None = None

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The given arguments by name, without defaults; ArgumentError if the function would not take them."""
        try:
            if self._by_name:
                return _given((self._resolved or self._resolve()).bound(*args, **kwargs))
        except TypeError:
            pass  # the message of inspect's bind is better
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            problem = f"{error}{self._suggestion(kwargs, str(error))}"
            raise ArgumentError(f"{self.name}(): {problem}; its signature is {self.name}{self._signature}") from None

    def check(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Raises ArgumentError if the function would not take these arguments."""
        if self._by_name:
            try:
                (self._resolved or self._resolve()).bound(*args, **kwargs)
                return
            except TypeError:
                pass  # bind() explains it
        self.bind(args, kwargs)

    def _suggestion(self, kwargs: Mapping[str, object], problem: str) -> str:
        for keyword in kwargs:
            if keyword not in self.parameters and (close := get_close_matches(keyword, self.parameters, n=1)):
                if repr(keyword) in problem:
                    return f" (did you mean {close[0]!r}?)"
                return f" ({keyword!r}: did you mean {close[0]!r}?)"  # bind reports a missing argument first
        return ""

    def encode(self, args: tuple[object, ...], kwargs: Mapping[str, object], headers: Headers = NO_HEADERS) -> bytes:
        """The body of a call; ArgumentError if it would not come back equal and of the same types."""
        signature = self._resolved or self._resolve()
        if not self._by_name:
            return self._encode_each(signature, self.bind(args, kwargs), headers)
        try:
            given = signature.bound(*args, **kwargs)
        except TypeError:
            given = signature.bound(**self.bind(args, kwargs))  # bind() raises the error with an explanation
        values = astuple(given)
        floats = signature.round_trips[tuple(map(type, values))]
        if floats is not None and not signature.mixed and not headers.label and headers.metadata is None:
            try:
                buffer = bytearray()
                write_into(
                    _stored_body(given if args or kwargs else ABSENT, headers, untyped=signature.untyped), buffer
                )
                body = bytes(buffer)  # without spare memory behind it: a store may keep a million of them
                if len(body) <= self.caps.arguments and (not floats or all(isfinite(values[at]) for at in floats)):
                    return body
            except ValueError:
                pass  # a lone surrogate, or an integer too long for decimal digits
        return self._encode_each(signature, _given(given), headers)

    def _encode_each(self, signature: _SignatureCodec, given: Mapping[str, object], headers: Headers) -> bytes:
        typed: dict[str, object] = {}
        tagged: dict[str, object] = {}
        for name, value in given.items():
            codec = signature.values[name]
            try:
                by_annotation, form = codec.store(value, self.caps.depth)
            except Unstorable as error:
                error.text += codec.note
                raise refusal(self.name, f"argument {name!r}", error.path(f"$.{name}"), error, self.caps) from None
            (typed if by_annotation else tagged)[name] = form
        return write_body(self.name, typed, tagged, headers, self.caps)

    def encode_given(self, given: Mapping[str, object], headers: Headers) -> bytes:
        """The body of a call whose other arguments are results of tasks. given: as `bind` returns it."""
        return self._encode_each(self._resolved or self._resolve(), given, headers)

    def store_item(self, name: str, value: object, index: int) -> msgspec.Raw:
        """A plain element in a list of results that is the argument `name`."""
        try:
            return (self._resolved or self._resolve()).result_reader(name).store_item(value, index, self.caps.depth)
        except Unstorable as error:
            path = error.path(f"$.{name}[{index}]")
            raise refusal(self.name, f"argument {name!r}", path, error, self.caps) from None

    def decode(self, body: bytes) -> tuple[dict[str, object], Headers]:
        """The arguments by name, and the headers; Undecodable for anything that `encode` does not write."""
        if body == _NO_ARGUMENTS and not self.required:
            return {}, NO_HEADERS
        signature = self._resolved or self._resolve()
        if signature.read is None or body.startswith(_UNTYPED):
            return self._decode_each(signature, body)
        try:
            stored = signature.read(body)
            given = asdict(stored.args)
            if ABSENT in given.values():
                for name in signature.optional:
                    if given[name] is ABSENT:
                        del given[name]
            if stored.inputs is None and not stored.trace:
                return given, NO_HEADERS
            return given, Headers(inputs=stored.inputs, trace=stored.trace, trace_state=stored.tracestate)
        except Exception:  # noqa: BLE001 - other headers or untyped arguments; or it is wrong, which the slow path explains
            return self._decode_each(signature, body)

    def _decode_each(self, signature: _SignatureCodec, body: bytes) -> tuple[dict[str, object], Headers]:
        try:
            stored = signature.read_any(body)
            given = _given(stored.args)
            if stored.results is not None:
                given |= signature.read_results(stored.results)
            given = self._load(signature.values, given, stored.open)
            return given, to_headers(stored)
        except _BadArgument as error:
            raise Undecodable(f"{self.name}: the stored arguments cannot be read: {error}", error.name) from error
        except Exception as error:
            found = _BODY_PATH.search(str(error))
            name = "" if found is None else found[1]
            problem = _BODY_PATH.sub(r"$.\1", str(error))  # the layout of a body means nothing to users
            raise Undecodable(f"{self.name}: the stored arguments cannot be read: {problem}", name) from error

    def _load(
        self, codecs: Mapping[str, ValueCodec], given: dict[str, Any], tagged: Mapping[str, object]
    ) -> dict[str, object]:
        for name, value in given.items():
            if codecs[name].read is None:
                codecs[name].check(value, f"$.{name}")
        others: dict[str, object] = {}
        for name, value in tagged.items():
            if name in codecs:
                given[name] = _load_argument(codecs[name], name, value)
            elif self._var_keyword is None:
                raise ValueError(f"unknown argument {name!r}")
            else:
                others[name] = value
        if self._var_keyword is not None and others:
            given[self._var_keyword] = given.get(self._var_keyword, {}) | codecs[self._var_keyword].load(others, "$")
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
        """ResultNotEncodable if it would not come back. A value that the annotation does not allow is stored tagged."""
        return write_result(value, (self._resolved or self._resolve()).result, self.caps, self.name)

    def decode_result(self, data: bytes) -> object:
        signature = self._resolved or self._resolve()
        return load_result(data, signature.read_result, signature.result.classes)

    def _resolve(self) -> _SignatureCodec:
        # At the first use and not at the declaration: annotations may name what is defined further down.
        self._resolved = _SignatureCodec(self._signature, hints_of(self.function), is_stream=self._is_stream)
        return self._resolved


def _item_annotation(returned: object) -> object:
    """The type of the items of an async generator.

    >>> _item_annotation(AsyncIterator[int]), _item_annotation(Any)
    (<class 'int'>, typing.Any)
    """
    if get_origin(returned) in (AsyncIterator, AsyncIterable, AsyncGenerator):
        return get_args(returned)[0]
    return Any


class _BadArgument(ValueError):
    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"argument {name!r}: {problem}")
        self.name = name


def _load_argument(codec: ValueCodec, name: str, value: object) -> Any:
    try:
        return codec.load(value, f"$.{name}")
    except Exception as error:
        raise _BadArgument(name, f"{error}{_text_advice(codec, name, value)}") from error


def _text_advice(codec: ValueCodec, name: str, value: object) -> str:
    """`onthedot add` passes x=21 as a text if it does not know the annotation."""
    if isinstance(value, str) and codec.read is not None:
        with suppress(Exception):
            codec.read(value.encode())
            return f"; from the command line write {name}:={value}"
    return ""


def _body_reader(arguments: type[Struct], strict: bool) -> Callable[[bytes], Any]:
    fields: list[Any] = [("args", arguments)]
    if not any(field.required for field in msgspec.structs.fields(arguments)):
        fields = [("args", arguments, msgspec.field(default_factory=arguments))]
    if strict:  # only typed arguments, as most bodies have, and perhaps what a member of a flow follows, and a trace
        fields += [("inputs", Inputs | None, None), ("trace", str, ""), ("tracestate", str, "")]
        return reader(msgspec.defstruct("TypedBody", fields, forbid_unknown_fields=True))
    fields.append(("open", dict[str, Any], msgspec.field(default_factory=dict)))
    return reader(msgspec.defstruct("TypedBody", fields, bases=(Headers,)))


def _stored_body(arguments: object, headers: Headers, *, untyped: bool) -> StoredBody:
    """headers: without a label and metadata, which are checked."""
    if headers is NO_HEADERS:
        return StoredBody(ABSENT, arguments) if untyped else StoredBody(arguments)
    return StoredBody(
        ABSENT if untyped else arguments,
        arguments if untyped else ABSENT,
        at=headers.at,
        scheduled_for=headers.scheduled_for,
        inputs=headers.inputs,
        results=headers.results,
        trace=headers.trace,
        trace_state=headers.trace_state,
    )


def _given(arguments: Struct) -> dict[str, Any]:
    return {name: value for name, value in asdict(arguments).items() if value is not ABSENT}
