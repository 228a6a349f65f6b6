"""Add, cancel and retry tasks."""

from __future__ import annotations

from hashlib import sha256

from onthedot.web.auth import base_path
from onthedot.web.bodies import NewTaskBody, ReasonBody, RetryBody
from onthedot.web.context import AddTask
from onthedot.web.endpoints import Answer, Query, WebCall
from onthedot.web.errors import ApiError
from onthedot.web.handlers.tasks import whole_uuid
from onthedot.web.hidden_values import with_hidden_values
from onthedot.web.schemas import AddedTask, Changed

_MAX_KEY = 200


def _adder(call: WebCall[Query, object]) -> AddTask:
    found = call.context.add_task
    if found is None:
        raise ApiError("not_available", "this server cannot add tasks")
    return found


async def add_task(call: WebCall[Query, NewTaskBody]) -> Answer:
    body = call.body
    add = _adder(call)
    key = call.request.headers.get("idempotency-key")
    uuid = body.uuid
    if key is not None:
        if uuid is not None or not 0 < len(key) <= _MAX_KEY:
            raise ApiError("bad_request", "Idempotency-Key takes the place of uuid, and has 1 to 200 characters")
        uuid = f"k-{sha256(key.encode()).hexdigest()[:32]}"  # holds across processes and restarts
    async with call.operations.recorded("add", body.source) as note:
        added = await add(body, uuid)
        note.changed = int(added.added)
    return _added(call, added)


def _added(call: WebCall[Query, object], added: AddedTask) -> Answer:
    place = f"{base_path(call.request)}/api/v1/tasks/{added.uuid}"
    return Answer(added, 201 if added.added else 200, {"Location": place})


async def cancel_task(call: WebCall[Query, ReasonBody]) -> Changed:
    uuid = await whole_uuid(call)
    return Changed(await call.operations.cancel(uuid, reason=call.body.reason or f"by {call.user.name}"))


async def retry_task(call: WebCall[Query, RetryBody]) -> Answer:
    uuid = await whole_uuid(call)
    if call.body.args is not None or call.body.at is not None:
        return await _retry_copy(call, uuid)
    info = await call.operations.get(uuid)
    if info.state not in ("failed", "cancelled"):
        return Answer(Changed(0))
    changed = len(await call.operations.retry(uuid))
    if not changed and info.unique is not None:
        holder = await call.operations.tasks.holder(info.source, info.unique)
        if holder is not None:
            raise ApiError("conflict", f"the unique key {info.unique!r} is held by task {holder}", candidates=[holder])
    return Answer(Changed(changed))


async def _retry_copy(call: WebCall[Query, RetryBody], uuid: str) -> Answer:
    """Add a task with other arguments, or at another time; what it copies is named in its metadata."""
    info = await call.operations.get(uuid)
    args = info.args
    if call.body.args is not None:
        args = with_hidden_values(call.body.args, info.args, call.context.redaction)
    copy = NewTaskBody(
        source=info.source,
        args=args,
        at=call.body.at,
        priority=info.priority,
        tags=info.tags,
        label=info.label,
        metadata={**info.metadata, "retried_from": uuid},
    )
    add = _adder(call)
    async with call.operations.recorded("retry with other arguments", uuid) as note:
        added = await add(copy, None)
        note.changed = 1
    return _added(call, added)
