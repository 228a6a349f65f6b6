"""Bodies and results: binding of calls, refused arguments, undecodable bodies."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from onthedot.codec.body import NO_HEADERS, Caps, Headers, ResultNotEncodable, Undecodable
from onthedot.codec.functions import FunctionCodec
from onthedot.codec.untyped import decode_untyped, decode_untyped_result, encode_untyped
from onthedot.errors import ArgumentError, DeclarationError

if TYPE_CHECKING:
    from datetime import datetime


CAPS = Caps()


def send(to: str, body: str = "", *, copies: int = 1) -> int: ...
def untyped(to, body=None): ...  # type: ignore[no-untyped-def]
def mixed(a: int, b, c: Any = None): ...  # type: ignore[no-untyped-def]
def nothing() -> None: ...
def keyword_only(a: int, *, b: int, c: int = 0) -> tuple[int, int, int]:
    return a, b, c


def positional_only(a: int, b: int = 2, /, c: int = 3) -> tuple[int, int, int]:
    return a, b, c


def variadic(a: int, *rest: float, **options: str) -> tuple[object, ...]:
    return a, rest, options


def later(node: Node, when: datetime, other: Missing = None) -> Node:  # noqa: F821
    return node


@dataclass
class Node:
    name: str = ""
    children: list[Node] = field(default_factory=list)


class Service:
    limit: int = 3

    async def handle(self, order: int) -> int:
        return order

    def __call__(self, order: int) -> int:
        return order


def codec(function: Callable[..., object], caps: Caps = CAPS) -> FunctionCodec:
    return FunctionCodec(function, "shop." + getattr(function, "__name__", "task"), caps)


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "body"),
    [
        (send, ("x",), {}, b'{"args":{"to":"x"}}'),
        (send, ("x", "y"), {"copies": 2}, b'{"args":{"to":"x","body":"y","copies":2}}'),
        (send, (), {"body": "y", "to": "x"}, b'{"args":{"to":"x","body":"y"}}'),
        (untyped, ("x",), {}, b'{"open":{"to":"x"}}'),
        (untyped, ((1,),), {}, b'{"open":{"to":{"!tuple":[1]}}}'),
        (mixed, (1, 2, {3}), {}, b'{"args":{"a":1},"open":{"b":2,"c":{"!set":[3]}}}'),
        (mixed, (True, None), {}, b'{"open":{"a":true,"b":null}}'),
        (nothing, (), {}, b"{}"),
        (variadic, (1,), {}, b'{"args":{"a":1}}'),
        (variadic, (1, 2, 3.5), {"k": "v"}, b'{"args":{"a":1,"rest":[2,3.5],"options":{"k":"v"}}}'),
    ],
)
def test_a_body_has_the_given_arguments_only(
    function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object], body: bytes
) -> None:
    tasks = codec(function)
    assert tasks.encode(args, kwargs) == body
    assert tasks.decode(body) == (tasks.bind(args, kwargs), NO_HEADERS)
    assert tasks.call(tasks.decode(body)[0]) == function(*args, **kwargs)


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "text"),
    [
        (send, (), {}, "shop.send(): missing a required argument: 'to'"),
        (send, ("a", "b", "c"), {}, "shop.send(): too many positional arguments"),
        (send, ("a",), {"to": "b"}, "shop.send(): multiple values for argument 'to'"),
        (send, ("a",), {"bdy": "b"}, "got an unexpected keyword argument 'bdy' (did you mean 'body'?)"),
        (send, (), {"too": "a"}, "missing a required argument: 'to' ('too': did you mean 'to'?)"),
        (send, ("a",), {"zzz": 1}, "got an unexpected keyword argument 'zzz'; its signature is shop.send(to: "),
        (nothing, (1,), {}, "shop.nothing(): too many positional arguments"),
        (keyword_only, (1, 2), {}, "shop.keyword_only(): "),
        (keyword_only, (1,), {}, "missing a required"),
        (positional_only, (), {"a": 1}, "shop.positional_only(): "),
        (variadic, (), {"k": "v"}, "missing a required argument: 'a'"),
    ],
)
def test_arguments_that_do_not_fit_the_signature_are_refused(
    function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object], text: str
) -> None:
    for refuse in (codec(function).encode, codec(function).bind):
        with pytest.raises(ArgumentError) as refusal:
            refuse(args, kwargs)
        assert text in str(refusal.value)


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (keyword_only, (1,), {"b": 2}),
        (positional_only, (1,), {}),
        (positional_only, (1, 5), {"c": 6}),
        (variadic, (1, 2.5, 3), {"to": "x", "a b": "y"}),
        (functools.partial(keyword_only, 1), (), {"b": 2}),
        (Service(), (5,), {}),
        (Node, ("x",), {}),
    ],
)
def test_decoded_arguments_call_every_kind_of_signature(
    function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    tasks = codec(function)
    assert tasks.call(tasks.decode(tasks.encode(args, kwargs))[0]) == function(*args, **kwargs)


def test_a_codec_lists_parameters_and_required_ones() -> None:
    assert (codec(send).parameters, codec(send).required) == (("to", "body", "copies"), ("to",))
    assert (codec(variadic).parameters, codec(variadic).required) == (("a", "rest", "options"), ("a",))
    assert codec(Service().handle).parameters == ("order",)
    with pytest.raises(DeclarationError, match="task"):
        FunctionCodec(dict, "task")


def test_types_are_checked_in_methods_and_callable_objects() -> None:
    for function in (Service().handle, Service(), functools.partial(Service.handle, Service())):
        with pytest.raises(ArgumentError, match=r"'order'.* str where int is declared"):
            codec(function).encode(("1",), {})


def test_annotations_may_name_types_that_are_defined_later_or_never() -> None:
    tasks = codec(later)
    node = Node("a", [Node("b")])
    assert tasks.encode((node, 1), {}).startswith(b'{"args":{"node":{"name":"a"')
    assert tasks.decode(tasks.encode((node, 1), {"other": (1,)}))[0] == {"node": node, "when": 1, "other": (1,)}
    with pytest.raises(ArgumentError, match=r"'other'.*its annotation 'Missing' names what"):
        tasks.encode((node, 1, node), {})


def test_headers_travel_with_the_arguments() -> None:
    headers = Headers(at="2026-01-31", scheduled_for=5, label="grüße", metadata={"trace": (1, {2: b"x"})})
    for function in (send, untyped, variadic):
        tasks = codec(function)
        given = tasks.bind((1,), {}) if function is variadic else {"to": "x"}
        body = tasks.encode(tuple(given.values()), {}, headers)
        assert tasks.decode(body) == (given, headers)
        assert decode_untyped(body) == (given, headers)
    assert decode_untyped(encode_untyped({}, headers)) == ({}, headers)
    assert codec(nothing).decode(codec(nothing).encode((), {}, Headers(label="x"))) == ({}, Headers(label="x"))
    for wrong in (Headers(label="\ud800"), Headers(metadata={"a": [object()]})):
        with pytest.raises(ArgumentError, match=r"shop\.send: its (label|metadata) cannot be stored: \$\.(label|meta)"):
            codec(send).encode(("x",), {}, wrong)


def test_any_body_is_decoded_without_its_function() -> None:
    tasks = codec(later)
    shown = decode_untyped(tasks.encode((Node("a"), (1, 2)), {}))[0]
    assert shown == {"node": {"name": "a", "children": []}, "when": (1, 2)}
    assert decode_untyped_result(b'{"open":{"!of":["Node",{"name":{"!tuple":[]}}]}}') == {"name": ()}
    assert decode_untyped(encode_untyped({1: 2, "!a": 3}))[0] == {1: 2, "!a": 3}  # type: ignore[dict-item]


def test_an_untyped_body_is_decoded_by_the_signature() -> None:
    assert codec(send).decode(encode_untyped({"to": "x", "copies": 2}))[0] == {"to": "x", "copies": 2}
    assert codec(variadic).decode(encode_untyped({"a": 1, "rest": (2,), "k": "v"}))[0] == {
        "a": 1,
        "rest": (2,),
        "options": {"k": "v"},
    }


def nested(levels: int, wrap: Callable[[object], object] = lambda inner: [inner]) -> Any:
    value: object = 1
    for _ in range(levels):
        value = wrap(value)
    return value


def chain(levels: int) -> Node:
    node = Node()
    for _ in range(levels):
        node = Node("", [node])
    return node


def looped() -> list[Any]:
    loop: list[Any] = []
    loop.append({"again": (loop,)})
    return loop


@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: (x,), lambda x: {"a": x}, lambda x: {1: x}])
def test_values_nested_too_deep_are_refused(wrap: Callable[[object], object]) -> None:
    tasks = codec(untyped)
    assert tasks.decode(tasks.encode((nested(64, wrap),), {}))[0] == {"to": nested(64, wrap)}
    assert decode_untyped(encode_untyped({"x": nested(64, wrap)}))[0] == {"x": nested(64, wrap)}
    for value in (nested(65, wrap), nested(5000, wrap)):
        for encode in (lambda v: tasks.encode((v,), {}), lambda v: encode_untyped({"to": v})):
            with pytest.raises(ArgumentError, match=r"argument 'to'.* 65 levels deep or .* the limit is 64"):
                encode(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    circle = Node()
    circle.children.append(circle)
    own: dict[str, Any] = {}
    own["self"] = own
    for value, function in ((looped(), untyped), (circle, later), (chain(40), later), (chain(5000), later)):
        with pytest.raises(ArgumentError, match="contains itself"):
            codec(function).encode((value, 1), {})
    with pytest.raises(ArgumentError, match="contains itself"):
        encode_untyped(own)
    with pytest.raises(ResultNotEncodable, match=r"the result .*contains itself, the limit is 64"):
        codec(send).encode_result(looped())


def test_arguments_and_results_that_are_too_large_are_refused() -> None:
    caps = Caps(arguments=100, result=50)
    for function in (send, untyped, variadic):
        with pytest.raises(ArgumentError, match=r"take \d{3} bytes \(most in '(body|rest)'\), the limit is 100"):
            codec(function, caps).encode((1, 2, *range(50)) if function is variadic else ("a", "b" * 100), {})
    with pytest.raises(ArgumentError, match=r"mail: the arguments take 1,048,599 bytes \(most in 'b'\)"):
        encode_untyped({"a": 1, "b": "x" * (1 << 20)}, name="mail")
    with pytest.raises(ArgumentError, match="the limit is 100"):
        codec(send, caps).encode(("a",), {}, Headers(metadata={"m": "x" * 100}))
    with pytest.raises(ResultNotEncodable, match="the result takes 110 bytes, the limit is 50"):
        codec(untyped, caps).encode_result("x" * 99)
    assert len(codec(send, caps).encode(("x" * 82,), {})) == 100
    with pytest.raises(ValueError, match="depth"):
        Caps(depth=1000)


HOSTILE = [
    b"",
    b"null",
    b"[]",
    b"{",
    b"\xff",
    b'{"args":5}',
    b'{"args":{}}',
    b'{"args":{"to":5}}',
    b'{"args":{"to":"x","unknown":1}}',
    b'{"args":{"to":"x"},"other":1}',
    b'{"args":{"to":"x"},"open":[]}',
    b'{"args":{"to":"x"},"open":{"unknown":1}}',
    b'{"args":{"to":"x"},"open":{"copies":"1"}}',
    b'{"args":{"to":"x"},"meta":5}',
    b'{"args":{"to":"x"},"label":5}',
    b'{"args":{"to":"x"},"for":"x"}',
    b'{"open":{"to":{"!tuple":"abc"}}}',
    b'{"open":{"to":{"!unknown":1}}}',
    b'{"open":{"to":{"!of":["str","x"]}}}',
    b'{"open":{"to":{"!of":["os.system",["true"]]}}}',
    b"[" * 100_000,
    b'{"open":{"to":' + b"[" * 100_000,
    b'{"open":{"to":' + b"[" * 600 + b"]" * 600 + b"}}",
]


@pytest.mark.parametrize("body", HOSTILE, ids=lambda body: body[:50].decode("latin-1"))
def test_a_hostile_body_raises_undecodable_only(body: bytes) -> None:
    with pytest.raises(Undecodable, match=r"shop\.send: the stored arguments cannot be read"):
        codec(send).decode(body)


KEYS = ["args", "open", "value", "meta", "to", "node", "name", "a", "!tuple", "!dict", "!of", "!datetime", "!set"]
TAGS = "tuple set frozenset dict bytes bytearray datetime date time timedelta decimal uuid path float int of nonsense"


@pytest.mark.parametrize("tag", TAGS.split())
@pytest.mark.parametrize(
    "content", ["5", "null", '"x y"', "[[[]]]", '[{"a":1}]', '["a","b","c"]', '{"!x":1}', "[1e400]"]
)
def test_a_tag_with_the_wrong_content_is_undecodable(tag: str, content: str) -> None:
    body = f'{{"!{tag}":{content}}}'
    for read in (codec(untyped).decode, decode_untyped):
        try:
            read(f'{{"open":{{"to":{body}}}}}'.encode())
        except Undecodable:
            continue
        assert tag in {"tuple", "set", "frozenset", "path", "of", "bytes", "bytearray", "timedelta"}


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(["Node", "2026-01-01", [], {}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
)


@settings(deadline=None)
@given(st.binary() | JSON.map(json.dumps).map(str.encode), st.sampled_from([send, untyped, later, variadic, mixed]))
def test_random_bytes_raise_undecodable_only(data: bytes, function: Callable[..., object]) -> None:
    tasks = codec(function)
    for read in (tasks.decode, tasks.decode_result, decode_untyped, decode_untyped_result):
        with suppress(Undecodable):
            read(data)


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("label", ["", "report"])
@pytest.mark.parametrize("function", [send, untyped, mixed])
def test_trace_travels_beside_the_arguments(function: Callable[..., object], label: str) -> None:
    codec = FunctionCodec(function, "f")
    headers = Headers(trace=TRACE, trace_state="a=1", label=label)
    given = {"a": 1, "b": 2} if function is mixed else {"to": "ann"}
    body = codec.encode((), given, headers)
    assert codec.decode(body) == (given, headers)
    assert decode_untyped(body) == (given, headers)
