"""The query string of lists of tasks → a filter."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from onthedot.errors import ArgumentError
from onthedot.model.redaction import Redaction
from onthedot.operations.filters import TEXT_FILTERS, TIME_FILTERS, parse_conditions, parse_filter, put_filter
from onthedot.operations.task_queries import TaskFilter
from onthedot.web.endpoints import Query
from onthedot.web.errors import ApiError

MAX_LIMIT = 200
DEFAULT_LIMIT = 50
MAX_UUIDS = 100
Limit = Annotated[int, Meta(ge=1, le=MAX_LIMIT)]
Text = Annotated[str, Meta(max_length=2000)]


class FilterFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of tasks; all must match. q: all of them in one text, as in ``source:deliver customer:acme since:1h``."""

    q: Text = ""
    source: Text = ""
    state: Text = ""
    tag: Text = ""
    since: Text = ""
    until: Text = ""
    error: Text = ""
    group: Text = ""
    flow: Text = ""
    uuid: Text = ""
    where: list[Text] = field(default_factory=list[str])


class TaskQuery(FilterFields, Query, frozen=True, kw_only=True):
    """A page of tasks. counts: also how many there are by state; uuids: exactly these, separated by commas."""

    uuids: Annotated[str, Meta(max_length=201 * MAX_UUIDS)] = ""
    counts: bool = False
    limit: Limit = DEFAULT_LIMIT
    cursor: Text = ""


def read_filter(
    given: FilterFields, redaction: Redaction, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> TaskFilter:
    """The filter of a query or body. ApiError: it cannot be read, or would look at a secret."""
    try:
        found = parse_filter(given.q, now)
    except ArgumentError as error:
        raise ApiError("bad_request", str(error), field="q") from None
    for name in (*TEXT_FILTERS, *TIME_FILTERS):
        value: str = getattr(given, name)
        if not value:
            continue
        if name in found:
            raise ApiError("bad_request", f"{name} is given twice", field=name)
        try:
            put_filter(found, name, value, now)
        except ArgumentError as error:
            raise ApiError("bad_request", str(error), field=name) from None
    try:
        conditions = parse_conditions(given.where)
    except ArgumentError as error:
        raise ApiError("bad_request", str(error), field="where") from None
    both = {**found.get("where", {}), **conditions}
    for path in both:
        if redaction.covers(path):
            raise ApiError("forbidden", f"{path} is a secret, and no filter reads it", field="where")
    if both:
        found["where"] = both
    return found


def filter_text(given: FilterFields) -> str:
    """The filter as one text, for the audit."""
    fields = msgspec.structs.asdict(given)
    terms = [f"{name}:{fields[name]}" for name in (*TEXT_FILTERS, *TIME_FILTERS) if fields[name]]
    return " ".join(filter(None, [given.q, *terms, *given.where]))
