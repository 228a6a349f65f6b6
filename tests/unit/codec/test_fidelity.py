"""Values come back equal and of the same type, all the way down, or are refused with their path."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, OrderedDict, deque, namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar, Union
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import given, settings, strategies as st

from onthedot.codec.body import ResultNotEncodable
from onthedot.codec.functions import FunctionCodec
from onthedot.codec.tagged_json import deep_equal
from onthedot.codec.untyped import decode_untyped, decode_untyped_result, encode_untyped, encode_untyped_result
from onthedot.errors import ArgumentError

T = TypeVar("T")
Color = Enum("Color", {"RED": "red", "BLUE": "blue"})
Corner = Enum("Corner", {"LOW": (0, 0), "HIGH": (1, 1)})
Level = IntEnum("Level", {"LOW": 1, "HIGH": 2})
Word = StrEnum("Word", {"YES": "yes"})
Right = Flag("Right", {"READ": 1, "WRITE": 2})
UserId = NewType("UserId", int)
NEPAL = timezone(timedelta(hours=5, minutes=45))
ODD = timezone(timedelta(hours=1, seconds=17))
BERLIN = ZoneInfo("Europe/Berlin")
NAN = float("nan")


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


@dataclasses.dataclass
class Circle(Point):
    radius: float = 1.0


@dataclasses.dataclass
class Order:
    id: int
    when: datetime
    lines: list[Point] = dataclasses.field(default_factory=list)
    color: Color | None = None
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Total:
    parts: list[int]
    total: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(self.parts)


@dataclasses.dataclass
class Secret:
    seed: dataclasses.InitVar[int]
    value: int = 0


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


@dataclasses.dataclass
class Node:
    children: list[Node] = dataclasses.field(default_factory=list)


class Item(msgspec.Struct):
    name: str
    price: Decimal


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str = ""


class Model(pydantic.BaseModel):
    id: int = pydantic.Field(alias="ID")
    when: datetime
    ratio: float = 1.0
    data: bytes = b""
    inner: Model | None = None


class Strict(pydantic.BaseModel):
    model_config = {"strict": True, "extra": "forbid"}
    day: date

    @pydantic.computed_field
    def year(self) -> int:
        return self.day.year


class Plain:
    pass


class Text(str):
    __slots__ = ()


MOMENT = datetime.fromisoformat("2026-01-31T12:30:15.123456")
MODEL = Model(ID=1, when=MOMENT)

# (annotation, value, whether it also comes back without an annotation)
KEPT: list[tuple[Any, Any, bool]] = [
    (str, "grüße 😀 \0\u2028", True),
    (str, "", True),
    (int, 7, True),
    (int, -(2**63) - 1, True),
    (int, 10**300, True),
    (int, 10**5000, True),
    (int, True, True),
    (UserId, 5, True),
    (float, 1.5, True),
    (float, -0.0, True),
    (float, 5e-324, True),
    (float, 1, True),
    (float, 2**70, True),
    (float, NAN, True),
    (float, -math.inf, True),
    (list[float], [1, 2.5, NAN, True], True),
    (dict[str, float], {"a": 1, "b": 1.0}, True),
    (bool, False, True),
    (None, None, True),
    (int | None, None, True),
    (int | str | None, "x", True),
    (float | None, 3, True),
    (list[int], [1, 2, 3], True),
    (list[list[str]], [["a"], []], True),
    (list, [1, (2,)], True),
    (tuple, (1, [2]), True),
    (tuple[int, str], (1, "a"), True),
    (tuple[int, ...], (1, 2), True),
    (tuple[()], (), True),
    (set[int], {1, 2}, True),
    (set, {1, "a", (2, 3)}, True),
    (frozenset[str], frozenset({"a"}), True),
    (Sequence[int], (1, 2), True),
    (Sequence[int], [1, 2], True),
    (Iterable[int], {1, 2}, True),
    (Mapping[str, int], {"a": 1}, True),
    (dict[str, int], {"b": 1, "a": 2}, True),
    (dict[int, str], {1: "a", -2: "b"}, True),
    (dict[UUID, int], {UUID(int=1): 1}, True),
    (dict[tuple[int, int], str], {(1, 2): "a"}, True),
    (dict[str, Any], {"at": MOMENT, "n": {1: {2}}, "!tuple": [1]}, True),
    (dict, {None: 1, True: 2, 2.5: 3, "x": 4, b"y": 5}, True),
    (Any, {"!tuple": [1, 2]}, True),
    (object, [{"!": 1}, {"!of": ["Point", {}]}], True),
    (bytes, bytes(range(256)), True),
    (bytearray, bytearray(b"ab"), True),
    (datetime, MOMENT, True),
    (datetime, MOMENT.replace(tzinfo=UTC), True),
    (datetime, MOMENT.replace(tzinfo=NEPAL), True),
    (datetime, MOMENT.replace(tzinfo=ODD), True),
    (datetime, MOMENT.replace(tzinfo=BERLIN), True),
    (datetime, MOMENT.replace(fold=1), True),
    (set[datetime], {MOMENT, MOMENT.replace(year=2025)}, True),
    (datetime, MOMENT.replace(year=9999), True),
    (str | datetime, MOMENT, True),
    (str | datetime, MOMENT.isoformat(), True),
    (date, date(2026, 2, 28), True),
    (date, MOMENT, True),
    (time, time(1, 2, 3, 4), True),
    (time, time(1, 2, tzinfo=NEPAL), True),
    (time, time(2, 30, fold=1), True),
    (timedelta, timedelta(days=-3, microseconds=1), True),
    (timedelta, timedelta.max, True),
    (Decimal, Decimal("1.500"), True),
    (Decimal, Decimal("-0E+7"), True),
    (Decimal, Decimal("NaN"), True),
    (UUID, UUID(int=5), True),
    (Path, Path("/tmp/ä b"), True),
    (Path | str, Path("x"), True),
    (list[Path], [Path("a/b"), Path("/")], True),
    (PurePosixPath, PurePosixPath("/a"), False),
    (Color, Color.RED, False),
    (Corner, Corner.HIGH, False),
    (Level, Level.HIGH, False),
    (Word, Word.YES, False),
    (Right, Right.READ | Right.WRITE, False),
    (dict[Color, int], {Color.RED: 1}, False),
    (Literal["a", 1, None], 1, True),
    (Literal["a", "b"], "b", True),
    (Literal[Color.RED], Color.RED, False),
    (Annotated[int, msgspec.Meta(ge=1)], 5, True),
    (Annotated[list[int], "a note"], [5], True),
    (Point, Point(1.5, 2.5), False),
    (Point, Point(1, 2), False),
    (Point, Point(NAN), False),
    (Point | Circle, Circle(1, 2, 3), False),
    (list[Point], [Point(1.5), Point(2)], False),
    (dict[str, Any] | Point, Point(1), False),
    (Box[int], Box(5), False),
    (Box[Any], Box((1, MOMENT)), False),
    (Total, Total([1, 2]), False),
    (Node, Node([Node(), Node([Node()])]), False),
    (Order, Order(1, MOMENT.replace(tzinfo=UTC), [Point(1.0)], Color.BLUE, {"a": [1, None]}), False),
    (Order, Order(1, MOMENT, [Point(1)], None, {"day": date(2026, 1, 1), "t": (1,)}), False),
    (Item, Item("a", Decimal("1.50")), False),
    (list[Item] | None, [Item("a", Decimal(1))], False),
    (Movie, {"title": "M", "year": 1931}, True),
    (Movie, {"title": "M"}, True),
    (Pair, Pair(1, "a"), False),
    (Model, MODEL, False),
    (Model, Model(ID=1, when=MOMENT, ratio=NAN, data=b"\xff", inner=MODEL), False),
    (list[Model], [MODEL, MODEL], False),
    (Strict, Strict(day=date(2026, 1, 1)), False),
]

# Each: annotation, value, path and message.
REFUSED: list[tuple[Any, Any, str, str]] = [
    (int, "5", "$.x", "is of type str where int is declared"),
    (int, 5.0, "$.x", "is of type float where int is declared"),
    (bool, 1, "$.x", "is of type int where bool is declared"),
    (str, 5, "$.x", "is of type int where str is declared"),
    (str, None, "$.x", "is of type NoneType where str is declared"),
    (str, Text("a"), "$.x", "pass a plain str"),
    (str, Word.YES, "$.x", "annotate the parameter with Word itself"),
    (str, "a\ud800", "$.x", "lone surrogate at 1"),
    (Annotated[int, msgspec.Meta(ge=1)], "a\ud800", "$.x", "surrogates not allowed"),
    (list[str], ["a", "\udfff"], "$.x[1]", "lone surrogate"),
    (dict[str, int], {"\ud800": 1}, "$.x", "lone surrogate"),
    (Path, Path("/tmp/\udcff"), "$.x", "lone surrogate"),
    (datetime, MOMENT.isoformat(), "$.x", "where datetime.datetime is declared"),
    (str | datetime, 5, "$.x", "where str | datetime.datetime is declared"),
    (Any, MOMENT.replace(tzinfo=timezone(timedelta(microseconds=1))), "$.x", "an offset in whole seconds"),
    (list[int], (1, 2), "$.x", "is of type tuple where list is declared"),
    (list[int], [1, "2"], "$.x[1]", "is of type str where int is declared"),
    (dict[str, list[int]], {"a": [1], "b c": [1, None]}, "$.x['b c'][1]", "where int is declared"),
    (tuple[int, int], (1, 2, 3), "$.x", "has 3 items where 2 are declared"),
    (set[int], {"a"}, "$.x[*]", "where int is declared"),
    (Sequence[int], "ab", "$.x[0]", "where int is declared"),
    (Literal["a", "b"], "c", "$.x", "is not one of 'a', 'b'"),
    (Literal[1], True, "$.x", "is not one of 1"),
    (Color, "red", "$.x", "Color is declared"),
    (Annotated[int, msgspec.Meta(ge=1)], 0, "$.x", ">= 1"),
    (Movie, {"title": "M", "director": "L"}, "$.x", "has a key that is not in Movie"),
    (Movie, {"year": 1}, "$.x", "is missing the key 'title'"),
    (Movie, {"title": 1}, "$.x.title", "where str is declared"),
    (Point, Circle(1, 2), "$.x", "annotate the parameter with Circle itself"),
    (Point, {"x": 1.0}, "$.x", "Point is declared"),
    (Secret, Secret(5, 1), "$.x", "making it again from its fields fails"),
    (list[Order], [Order(1, MOMENT, extra={"a": [Plain()]})], "$.x[0].extra.a[0]", "Plain, which cannot be stored"),
    (Plain, Plain(), "$.x", "pass plain values"),
    (Any, Plain(), "$.x", "pass plain values"),
    (Any, [1, 2, 3, {"when": Plain()}], "$.x[3].when", "which cannot be stored"),
    (Any, {1: {(2, 3): Plain()}}, "$.x[1][tuple]", "which cannot be stored"),
    (Any, Point(1), "$.x", "annotate the parameter with Point itself"),
    (Any, namedtuple("P", "a")(1), "$.x", "annotate the parameter with P itself"),
    (dict, OrderedDict(a=1), "$.x", "pass a plain dict"),
    (Any, Counter("a"), "$.x", "pass a plain dict"),
    (Any, deque([1]), "$.x", "which cannot be stored"),
    (Any, range(3), "$.x", "which cannot be stored"),
    (Any, 1j, "$.x", "which cannot be stored"),
    (Iterable[int], iter([1]), "$.x", "which cannot be stored"),
    (Callable[[], int], print, "$.x", "which cannot be stored"),
    (Any, Plain, "$.x", "which cannot be stored"),
    (Any, msgspec.UNSET, "$.x", "which cannot be stored"),
    (Any, ..., "$.x", "which cannot be stored"),
]


def codec(annotation: Any = None, bare: bool = False) -> FunctionCodec:
    def task(x, y=0): ...  # type: ignore[no-untyped-def]

    if not bare:
        task.__annotations__ = {"x": annotation, "return": annotation}
    return FunctionCodec(task, "shop.task")


def name(case: Any) -> str:
    return str(case)[:40] if type(case) is not int else "int"


def assert_same(value: object, back: object) -> None:
    assert deep_equal(value, back)
    assert type(value) is type(back)
    assert value == back or "nan" in repr(value).lower()


@pytest.mark.parametrize(("annotation", "value", "bare"), KEPT, ids=name)
def test_annotated_values_come_back_equal(annotation: Any, value: Any, bare: bool) -> None:
    for declared in (annotation, Union[annotation, None]):  # noqa: UP007
        tasks = codec(declared)
        assert_same({"x": value}, tasks.decode(tasks.encode((value,), {}))[0])
        assert_same(value, tasks.decode_result(tasks.encode_result(value)))


@pytest.mark.parametrize(("annotation", "value", "bare"), KEPT, ids=name)
def test_values_without_annotation_come_back_equal_or_are_refused(annotation: Any, value: Any, bare: bool) -> None:
    tasks = codec(bare=True)
    if bare:
        assert_same({"x": value}, tasks.decode(tasks.encode((value,), {}))[0])
        assert_same(value, tasks.decode_result(tasks.encode_result(value)))
        assert_same({"x": value}, decode_untyped(encode_untyped({"x": value}))[0])
        assert_same(value, decode_untyped_result(encode_untyped_result(value)))
    else:
        with pytest.raises(ArgumentError, match=r"shop\.task: argument 'x' .*\$\.x"):
            tasks.encode((value,), {})
        with pytest.raises(ArgumentError, match="argument 'x'"):
            encode_untyped({"x": value})
        with pytest.raises(ResultNotEncodable, match=r"shop\.task: the result cannot be stored: \$"):
            tasks.encode_result(value)


@pytest.mark.parametrize(("annotation", "value", "path", "text"), REFUSED, ids=name)
def test_a_value_that_would_change_is_refused_with_its_path(annotation: Any, value: Any, path: str, text: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        codec(annotation).encode((value,), {})
    assert str(refusal.value).startswith(f"shop.task: argument 'x' cannot be stored: {path} ")
    assert text in str(refusal.value)
    str(refusal.value).encode()


@pytest.mark.parametrize(
    ("annotation", "result"), [(int, "5"), (None, {1, 2}), (list[int], (1, 2)), (Color, "red"), (str, None)]
)
def test_a_result_that_does_not_fit_its_annotation_is_stored(annotation: Any, result: Any) -> None:
    tasks = codec(annotation)
    assert_same(result, tasks.decode_result(tasks.encode_result(result)))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ([1], (1,)),
        ({"a": 1}, {"a": 1.0}),
        ({1}, {True}),
        ({1, 2}, {1}),
        (Decimal("1.0"), Decimal("1.00")),
        (MOMENT.replace(tzinfo=UTC), MOMENT.replace(tzinfo=NEPAL) + timedelta(hours=5, minutes=45)),
        (Point(1), Point(1.0)),
        (Pair(1), (1, "")),
        (Text("a"), "a"),
        (Item("a", Decimal(1)), Item("a", Decimal("1.0"))),
        (MODEL, MODEL.model_copy(update={"ratio": 1})),
    ],
    ids=name,
)
def test_deep_equal_compares_types_and_details(a: object, b: object) -> None:
    assert deep_equal(a, a)
    assert not deep_equal(a, b)
    assert not deep_equal([{"a": (a,)}], [{"a": (b,)}])


OFFSETS = st.integers(-86399, 86399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
HASHABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes(timezones=st.none() | OFFSETS | st.timezones(), allow_imaginary=False)
    | st.times(timezones=st.none() | OFFSETS | st.timezones())
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.sampled_from(["!tuple", "!dict", "!", Path("a")]),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(inner, max_size=4),
    max_leaves=6,
)
OPEN = st.recursive(
    HASHABLE | st.binary().map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(HASHABLE, max_size=4)
        | st.dictionaries(st.text() | st.sampled_from(["!tuple", "!of"]), inner, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4)
    ),
    max_leaves=12,
)
OTHER = st.sampled_from([Plain(), Point(1), Color.RED, Pair(1), Text("a"), 1j, deque(), range(2), "\ud800", MODEL])


@settings(deadline=None)
@given(OPEN)
def test_every_value_without_annotation_comes_back(value: object) -> None:
    tasks = codec(bare=True)
    assert deep_equal({"x": value}, tasks.decode(tasks.encode((value,), {}))[0])
    assert deep_equal({"x": value}, decode_untyped(encode_untyped({"x": value}))[0])
    assert deep_equal(value, decode_untyped_result(encode_untyped_result(value)))


@settings(deadline=None)
@given(OTHER, st.lists(st.sampled_from([list, tuple, "key", 7]), max_size=5))
def test_other_types_are_refused_at_any_depth(value: Any, around: list[Any]) -> None:
    for wrap in around:
        value = wrap([value]) if callable(wrap) else {wrap: value}
    with pytest.raises(ArgumentError, match="argument 'x'"):
        codec(bare=True).encode((value,), {})


ANNOTATIONS = [case[0] for case in KEPT]
CODECS = [codec(annotation) for annotation in ANNOTATIONS]
VALUES = st.sampled_from([case[1] for case in KEPT] + [case[1] for case in REFUSED]) | OPEN


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(CODECS), VALUES | st.lists(VALUES, max_size=2) | st.dictionaries(st.text(), VALUES, max_size=2))
def test_no_body_is_written_that_decodes_to_another_value(tasks: FunctionCodec, value: object) -> None:
    try:
        body = tasks.encode((value,), {})
    except ArgumentError:
        return
    assert deep_equal({"x": value}, tasks.decode(body)[0])
