"""Failed tasks, grouped by error."""

from __future__ import annotations

from datetime import UTC, datetime

from onthedot.errors import ArgumentError
from onthedot.operations.failures import FailureGroup
from onthedot.operations.filters import parse_moment
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.rows import MAX_MESSAGE, shortened, utc
from onthedot.web.schemas import FailureList, FailureRow

_AGE = 0.5  # seconds
_MAX_GROUPS = 200


class FailureQuery(Query, frozen=True, kw_only=True):
    """since: a time ago or a moment; source: only of this one."""

    since: str = "24h"
    source: str = ""


async def list_failures(call: WebCall[FailureQuery, None]) -> FailureList:
    now = datetime.now(UTC)
    try:
        since = parse_moment(call.query.since, now)
    except ArgumentError as error:
        raise ApiError("bad_request", str(error), field="since") from None
    source = call.query.source or None
    counts = call.operations.failure_counts
    name = f"failures {call.query.since} {call.query.source}"
    found = await call.context.shared.get(name, _AGE, lambda: counts.look(since, source))
    return FailureList(
        items=[_row(group, call) for group in found.groups[:_MAX_GROUPS]],
        counted=sum(group.count for group in found.groups),
        as_of=found.as_of,
        total=found.total,
        read=found.read_count,
        counted_to=found.counted_to,
    )


def _row(group: FailureGroup, call: WebCall[FailureQuery, None]) -> FailureRow:
    return FailureRow(
        group=group.group,
        source=group.source,
        type=group.type,
        message=shortened(call.context.redaction.text(group.message), MAX_MESSAGE),
        place=call.context.redaction.text(group.place),
        count=group.count,
        first=utc(group.first),
        last=utc(group.last),
        example=group.example,
        trend=group.trend,
    )
