"""Bodies and results without their function: for consumers, remote tasks and operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onthedot.codec.annotations import ABSENT, ValueCodec, reader
from onthedot.codec.body import (
    DEFAULT_CAPS,
    NO_HEADERS,
    Caps,
    Headers,
    StoredBody,
    StoredResult,
    Undecodable,
    load_result,
    refusal,
    to_headers,
    write_body,
    write_result,
)
from onthedot.codec.results import load_untyped
from onthedot.codec.tagged_json import Unstorable, from_tagged, to_tagged, type_name
from onthedot.errors import ArgumentError

_ANY_VALUE = ValueCodec(Any)
_read_body = reader(StoredBody)
_read_result = reader(StoredResult)


def encode_untyped(
    args: Mapping[str, object], headers: Headers = NO_HEADERS, caps: Caps = DEFAULT_CAPS, name: str = "task"
) -> bytes:
    """A body for arguments without a signature.

    >>> encode_untyped({"to": "a@b.c", "at": (1, 2)})
    b'{"open":{"to":"a@b.c","at":{"!tuple":[1,2]}}}'
    >>> decode_untyped(encode_untyped({"to": "a@b.c", "at": (1, 2)}))[0]
    {'to': 'a@b.c', 'at': (1, 2)}
    """
    if not isinstance(args, Mapping):
        raise ArgumentError(f"{name}: the arguments are of type {type_name(type(args))}; pass a dict")
    try:
        tagged = to_tagged(dict(args), depth=caps.depth + 1)
    except Unstorable as error:
        what = "the arguments"
        if error.steps and type(error.steps[-1]) is str:
            what = f"argument {error.steps[-1]!r}"
        raise refusal(name, what, error.path(), error, caps) from None
    return write_body(name, {}, tagged, headers, caps)


def decode_untyped(body: bytes) -> tuple[dict[str, object], Headers]:
    """The arguments and headers of any body. Arguments that were written by an annotation come as plain JSON."""
    try:
        stored = _read_body(body)
        given = {} if stored.args is ABSENT else dict(stored.args)
        if stored.open is not ABSENT:
            given |= from_tagged(stored.open, None)
        if stored.results is not None:
            given |= {name: load_untyped(data) for name, data in stored.results.items()}
        return given, to_headers(stored)
    except Exception as error:
        raise Undecodable(f"the stored arguments cannot be read: {error}") from error


def encode_untyped_result(value: object, caps: Caps = DEFAULT_CAPS) -> bytes:
    """
    >>> decode_untyped_result(encode_untyped_result({1, 2}))
    {1, 2}
    """
    return write_result(value, _ANY_VALUE, caps, "task")


def decode_untyped_result(data: bytes) -> object:
    return load_result(data, _read_result, None)
