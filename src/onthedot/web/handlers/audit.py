"""The audit log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta

from onthedot.errors import ArgumentError
from onthedot.model.redaction import Redaction
from onthedot.operations.audit import AuditRecord
from onthedot.operations.filters import parse_moment
from onthedot.web.endpoints import Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.feature_schemas import AuditList, AuditRow


class AuditQuery(Query, frozen=True, kw_only=True):
    """Changes, newest first. action, user: exactly; since: a time ago or a moment."""

    action: str = ""
    user: str = ""
    since: str = "90d"
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: Annotated[str, Meta(max_length=100)] = ""


async def list_audit(call: WebCall[AuditQuery, None]) -> AuditList:
    query = call.query
    try:
        since = parse_moment(query.since, datetime.now(UTC))
    except ArgumentError as error:
        raise ApiError("bad_request", str(error), field="since") from None
    if query.cursor and await call.operations.audit.get(query.cursor) is None:
        raise ApiError("bad_request", "this is not the cursor of an earlier page", field="cursor")
    found = await call.operations.audit.newest(
        query.limit,
        action=query.action or None,
        user=query.user or None,
        since=since,
        before=query.cursor or None,
    )
    cursor = found[-1].id if len(found) == query.limit else None
    return AuditList([_row(each, call.context.redaction) for each in found], cursor)


def _row(record: AuditRecord, redaction: Redaction) -> AuditRow:
    entry = record.entry
    return AuditRow(
        id=record.id,
        at=record.at,
        user=entry.user,
        role=entry.role,
        via=entry.via,
        action=entry.action,
        target=redaction.text(entry.target),
        filter=redaction.text(entry.filter),
        reason=redaction.text(entry.reason),
        state=entry.state,
        found=entry.found,
        done=entry.done,
        changed=entry.changed,
        error=redaction.text(entry.error),
    )
