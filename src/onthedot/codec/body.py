"""The stored form of a call and of a result, for code that knows the function's signature and for code that does not.

A body is ``{"args": {…}, "open": {…}, "at": "…", "for": …, "label": "…", "meta": {…}, "trace": "…"}``; empty parts are
left out. A task of a flow also has ``inputs``: the results that it needs; before it runs, they become ``results``. A
result is ``{"value": …}``, ``{"open": …}``, ``{"many": […]}`` for the results of a group, or nothing at all for None.
``args`` and ``value`` are written and read by the annotations. ``open`` and ``meta`` carry their types with them
(`tagged_json`): they hold arguments without an annotation or with one that leaves types open, and values that the
annotation allows but would change (a tuple for ``Sequence``).

Every value is decoded again and compared before it is stored, except where its types prove that it comes back equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

import msgspec
from msgspec import Struct

from onthedot.codec.annotations import ABSENT, ValueCodec, write
from onthedot.codec.tagged_json import Classes, TooDeep, Unstorable, from_tagged, to_tagged
from onthedot.errors import ArgumentError


class Undecodable(ArgumentError, ValueError):
    """A body or result that cannot be read: damaged, of another system, or written for another signature."""

    def __init__(self, message: str, argument: str = "") -> None:
        super().__init__(message)
        self.argument = argument  # its name, if only one is wrong


class ResultNotEncodable(ValueError):
    """A result that would not come back as it is."""


@dataclass(frozen=True)
class Caps:
    """How much an app stores at most per task: ``App(caps=Caps(result=1 << 20))``.

    Args:
        arguments: bytes of the encoded arguments with label and metadata; more raises `ArgumentError`.
        result: bytes of the encoded result; a larger one is not stored, and waiting for it raises `ResultNotStored`.
        depth: levels of nesting in arguments and result, from 1 to 128.

    >>> Caps(depth=200)
    Traceback (most recent call last):
    ValueError: depth must be from 1 to 128, so that it can be read back anywhere; not 200
    """

    arguments: int = 1 << 20
    result: int = 8 << 20
    depth: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.depth <= 128:
            raise ValueError(f"depth must be from 1 to 128, so that it can be read back anywhere; not {self.depth}")


DEFAULT_CAPS = Caps()


class Inputs(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The relation of a task's arguments to the flow that it belongs to.

    args: by name, the number of the member whose result it is, or a list of elements: a number, a range of numbers as
        ``[first, last]``, or a stored plain value
    failures: arguments that get the first failure of the flow
    after: numbers and ranges of members that it only follows
    total: of the flow's last task: how many tasks the flow has, without joins and handlers
    members: of the flow's last task: how many numbers its members have, joins included
    collects: failures of members take the place of their results
    stops: its failure cancels the members that have not started
    starts: the flow has a start signal
    """

    flow: str
    args: dict[str, Any] = {}  # copied by msgspec
    failures: tuple[str, ...] = ()
    after: tuple[Any, ...] = ()
    total: int = 0
    members: int = 0
    collects: bool = False
    stops: bool = False
    starts: bool = False


class Headers(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The values that a body carries beside the arguments."""

    at: str | None = None
    scheduled_for: int | None = msgspec.field(default=None, name="for")
    label: str = ""
    metadata: dict[str, Any] | None = msgspec.field(default=None, name="meta")
    inputs: Inputs | None = None
    results: dict[str, msgspec.Raw] | None = None  # by argument
    trace: str = ""  # traceparent of the span that added the task, as W3C Trace Context writes it
    trace_state: str = msgspec.field(default="", name="tracestate")


NO_HEADERS = Headers()


class StoredBody(Headers, frozen=True, gc=False):
    """A body as it is written, or read without a signature."""

    args: Any = ABSENT
    open: Any = ABSENT


class StoredResult(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A result as it is written, or read without a signature."""

    value: Any = ABSENT
    open: Any = ABSENT
    many: list[msgspec.Raw] = ABSENT  # the stored results of a group's members


EMPTY_RESULT = b"{}"  # None, as an element


def write_body(name: str, typed: dict[str, object], tagged: Any, headers: Headers, caps: Caps) -> bytes:
    """The body of a call of the task `name`; ArgumentError if it is too large or a header cannot be stored."""
    body = StoredBody(typed or ABSENT, tagged or ABSENT)
    if headers is not NO_HEADERS:
        body = _with_headers(body, headers, name, caps)
    written = write(body)
    if len(written) > caps.arguments:
        largest = ""
        if sizes := {argument: len(write(form)) for argument, form in (typed | tagged).items()}:
            largest = f" (most in {max(sizes, key=lambda argument: sizes[argument])!r})"
        raise ArgumentError(
            f"{name}: the arguments take {len(written):,} bytes{largest}, the limit is {caps.arguments:,}; "
            "keep large data elsewhere and pass where it is"
        )
    return written


def add_trace(body: bytes, trace: str, trace_state: str) -> bytes:
    """A body that was written already, with the trace that its run continues.

    >>> add_trace(b'{"args":{"to":"ann"}}', "00-4b-00-01", "")
    b'{"args":{"to":"ann"},"trace":"00-4b-00-01"}'
    """
    if not body.endswith(b"}"):  # of another system
        return body
    headers: dict[str, str] = {"trace": trace}
    if trace_state:
        headers["tracestate"] = trace_state
    written = msgspec.json.encode(headers)
    return written if body == b"{}" else body[:-1] + b"," + written[1:]


def _with_headers(body: StoredBody, headers: Headers, name: str, caps: Caps) -> StoredBody:
    metadata = headers.metadata
    part = "label"
    try:
        label = str(to_tagged(headers.label))
        part = "metadata"
        if metadata is not None:
            metadata = cast("dict[str, Any]", to_tagged(metadata, depth=caps.depth + 1))
    except Unstorable as error:
        raise refusal(name, f"its {part}", error.path(f"$.{part}"), error, caps) from None
    return StoredBody(
        body.args,
        body.open,
        at=headers.at,
        scheduled_for=headers.scheduled_for,
        label=label,
        metadata=metadata,
        inputs=headers.inputs,
        results=headers.results,
        trace=headers.trace,
        trace_state=headers.trace_state,
    )


def to_headers(stored: Any) -> Headers:
    """The headers of a body that was read."""
    metadata: dict[str, Any] | None = None
    if stored.metadata is not None:
        metadata = from_tagged(stored.metadata)
    if not isinstance(metadata, dict | None):
        raise TypeError("the metadata is no object")
    headers = Headers(
        at=stored.at,
        scheduled_for=stored.scheduled_for,
        label=stored.label,
        metadata=metadata,
        inputs=stored.inputs,
        trace=stored.trace,
        trace_state=stored.trace_state,
    )
    return NO_HEADERS if headers == NO_HEADERS else headers


def write_result(value: object, codec: ValueCodec, caps: Caps, name: str) -> bytes:
    """A result as bytes; ResultNotEncodable if it would not come back or is too large."""
    if value is None:
        return b""
    if type(value) in codec.exact and (type(value) is not float or isfinite(value)):
        typed = codec.read is not None
        form = value
    else:
        typed, form = _stored_result(value, codec, caps, name)
    try:
        data = write(StoredResult(form) if typed else StoredResult(ABSENT, form))
    except ValueError:  # a lone surrogate, or an integer too long for decimal digits
        data = write(StoredResult(ABSENT, _stored_result(value, codec, caps, name)[1]))
    if len(data) > caps.result:
        raise ResultNotEncodable(
            f"{name}: the result takes {len(data):,} bytes, the limit is {caps.result:,}; "
            "keep it elsewhere and return where it is"
        )
    return data


def _stored_result(value: object, codec: ValueCodec, caps: Caps, name: str) -> tuple[bool, object]:
    try:
        return codec.store(value, caps.depth, checked=False)
    except Unstorable as error:
        raise ResultNotEncodable(str(refusal(name, "the result", error.path(), error, caps))) from None


def load_result(data: bytes, read: Callable[[bytes], Any], classes: Classes | None) -> object:
    """The value of stored bytes; Undecodable if they are no result."""
    if not data or data == EMPTY_RESULT:
        return None
    try:
        stored = read(data)
        value = stored.value
        if stored.open is not ABSENT:
            value = from_tagged(stored.open, classes)
        elif stored.many is not ABSENT:
            value = [load_result(item, read, classes) for item in map(bytes, stored.many)]
    except Exception as error:
        raise Undecodable(f"the stored result cannot be read: {error}") from error
    if value is ABSENT:
        raise Undecodable("the stored result cannot be read: it has no value")
    return value


def refusal(name: str, what: str, path: str, error: Unstorable, caps: Caps) -> ArgumentError:
    """The error for a value of the task `name` that cannot be stored."""
    text = f"{path} {error.text}"
    if isinstance(error, TooDeep):
        text = f"it is {caps.depth + 1} levels deep or contains itself, the limit is {caps.depth}; pass flatter data"
    return ArgumentError(f"{name}: {what} cannot be stored: {text}")
