"""Datetimes and times keep their ZoneInfo and their fold, or are refused."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import TZPATH, ZoneInfo

import msgspec
import pydantic
import pytest

from onthedot import App, ArgumentError
from onthedot.codec.body import ResultNotEncodable
from onthedot.codec.functions import FunctionCodec
from onthedot.codec.tagged_json import deep_equal
from onthedot.codec.untyped import decode_untyped, encode_untyped
from tests.support.app_stores import AppStore

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 1, 31, 12, tzinfo=BERLIN)
SECOND = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN)  # of two such times of this day
FIXED = timezone(timedelta(hours=1))


@dataclasses.dataclass
class Meeting:
    at: datetime


class Entry(msgspec.Struct):
    at: datetime


class Model(pydantic.BaseModel):
    at: datetime


class Offset(tzinfo):
    """A time zone of another library."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=1)


def codec(annotation: Any) -> FunctionCodec:
    def task(x): ...  # type: ignore[no-untyped-def]

    task.__annotations__ = {"x": annotation, "return": annotation}
    return FunctionCodec(task, "meet")


def details(moment: datetime | time) -> tuple[object, ...]:
    return type(moment), moment.isoformat(), moment.fold, moment.tzinfo, type(moment.tzinfo)


@pytest.mark.parametrize("annotation", [datetime, Any, datetime | None])
@pytest.mark.parametrize(
    "moment",
    [NOON, SECOND, SECOND.replace(fold=0), NOON.replace(tzinfo=ZoneInfo("UTC")), NOON.replace(tzinfo=FIXED, fold=1)],
    ids=str,
)
def test_a_datetime_keeps_its_zone_and_fold(moment: datetime, annotation: Any) -> None:
    tasks = codec(annotation)
    back = tasks.decode(tasks.encode((moment,), {}))[0]["x"]
    assert details(back) == details(moment)
    assert back + timedelta(days=1) == moment + timedelta(days=1)
    assert details(tasks.decode_result(tasks.encode_result(moment))) == details(moment)
    assert details(decode_untyped(encode_untyped({"x": moment}))[0]["x"]) == details(moment)


@pytest.mark.parametrize("annotation", [time, Any])
def test_a_time_keeps_its_zone_and_fold(annotation: Any) -> None:
    tasks = codec(annotation)
    for moment in (time(7, 30, tzinfo=BERLIN), time(2, 30, fold=1, tzinfo=BERLIN)):
        assert details(tasks.decode(tasks.encode((moment,), {}))[0]["x"]) == details(moment)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (dict[str, list[datetime]], {"a": [SECOND, NOON]}),
        (set[datetime], {SECOND, SECOND.astimezone(UTC)}),
        (Any, {SECOND: 1, SECOND.astimezone(UTC): 2}),
        (Meeting, Meeting(SECOND)),
        (Entry, Entry(SECOND)),
        (Model, Model(at=SECOND)),
    ],
    ids=str,
)
def test_a_datetime_inside_another_value_keeps_its_zone(annotation: Any, value: Any) -> None:
    tasks = codec(annotation)
    assert deep_equal(tasks.decode(tasks.encode((value,), {}))[0], {"x": value})
    assert deep_equal(tasks.decode_result(tasks.encode_result(value)), value)


def test_a_zone_that_would_be_lost_is_refused() -> None:
    with next(file for folder in TZPATH if (file := Path(folder, "Europe/Berlin")).exists()).open("rb") as file:
        nameless = ZoneInfo.from_file(file)
    for zone, text in ((Offset(), "of type .*Offset, of which only"), (nameless, "of type zoneinfo.ZoneInfo")):
        for annotation in (datetime, Any):
            with pytest.raises(
                ArgumentError, match=rf"meet: argument 'x' cannot be stored: \$\.x has a time zone {text}"
            ):
                codec(annotation).encode((NOON.replace(tzinfo=zone),), {})
            with pytest.raises(ResultNotEncodable, match="has a time zone"):
                codec(annotation).encode_result(NOON.replace(tzinfo=zone))


@pytest.mark.parametrize(
    "other",
    [
        NOON.replace(tzinfo=FIXED),
        NOON.replace(tzinfo=ZoneInfo("Europe/Paris")),
        NOON.replace(fold=1),
        NOON.astimezone(UTC),
    ],
    ids=str,
)
def test_datetimes_of_other_zones_are_not_taken_for_equal(other: datetime) -> None:
    assert not deep_equal(NOON, other)
    assert deep_equal(other, other)


def test_arguments_and_results_keep_their_zone_on_every_store(app_store: AppStore) -> None:
    app: App[None] = App(app_store.name, store=app_store.url)

    @app.task
    async def typed(at: datetime) -> datetime:
        return at + timedelta(days=1)

    @app.task
    async def untyped(at):  # type: ignore[no-untyped-def]
        return [at, SECOND]

    async def main() -> None:
        async with app.running():
            assert details(await (await typed.enqueue(NOON))) == details(NOON + timedelta(days=1))
            assert list(map(details, await (await untyped.enqueue(SECOND)))) == [details(SECOND)] * 2

    asyncio.run(main())
