"""Series for charts: the work of all workers over time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from msgspec import Meta

from onthedot.errors import ArgumentError
from onthedot.operations.filters import parse_moment
from onthedot.operations.series import SERIES_NAMES, SeriesData
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.schemas import ReleaseMark, SeriesDetail
from onthedot.web.source_schemas import ChartDetail

_AGE = 2.0  # seconds; workers write every 10 s


class SeriesQuery(Query, frozen=True, kw_only=True):
    """names: separated by commas; source: only of this one; since, until: a time ago or a moment; step: seconds."""

    names: Annotated[str, Meta(max_length=500)] = "done,failed"
    source: str = ""
    since: str = "1h"
    until: str = ""
    step: Literal["auto", "60", "600", "3600"] = "auto"


async def show_series(call: WebCall[SeriesQuery, None]) -> ChartDetail:
    query = call.query
    names = tuple(dict.fromkeys(name for name in query.names.split(",") if name))
    if unknown := [name for name in names if name not in SERIES_NAMES]:
        raise ApiError(
            "bad_request", f"there is no series {unknown[0]!r}; there are {', '.join(SERIES_NAMES)}", field="names"
        )
    found = await read_series(call, names, query.source, query.since, query.until, query.step)
    return ChartDetail(step=found.step, at=found.at, series=found.series, marks=await release_marks(call, found))


async def release_marks(call: WebCall[Query, None], series: SeriesData) -> list[ReleaseMark]:
    """The code releases that began in the span of a series."""
    if not series.at:
        return []
    return [ReleaseMark(each.name, each.at) for each in await call.operations.releases(series.at[0])]


async def read_series(
    call: WebCall[Query, None], names: tuple[str, ...], source: str, since: str, until: str = "", step: str = "auto"
) -> SeriesData:
    """All callers of the next two seconds get the same."""
    now = datetime.now(UTC)
    begin = _moment(since, now, "since")
    end = _moment(until, now, "until") if until else None
    wanted = None if step == "auto" else int(step)
    operations = call.operations
    key = f"series {names} {source} {since} {until} {step}"
    try:
        return await call.context.shared.get(
            key, _AGE, lambda: operations.series(names, source or None, begin, end, wanted)
        )
    except ArgumentError as error:
        raise ApiError("bad_request", str(error)) from None


def series_detail(data: SeriesData) -> SeriesDetail:
    return SeriesDetail(step=data.step, at=data.at, series=data.series)


def _moment(text: str, now: datetime, field: str) -> datetime:
    try:
        return parse_moment(text, now)
    except ArgumentError as error:
        raise ApiError("bad_request", str(error), field=field) from None
