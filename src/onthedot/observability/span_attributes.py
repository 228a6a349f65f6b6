"""The attributes of spans: those of OpenTelemetry for messaging, and our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from onthedot.model.context import RunState
from onthedot.stores.contract import Completed, Ended, NewTask, Outcome, Suspended

SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
MESSAGE_ID: Final = "messaging.message.id"
BATCH_COUNT: Final = "messaging.batch.message_count"
ATTEMPT: Final = "onthedot.attempt"
FENCE: Final = "onthedot.fence"
SCHEDULE: Final = "onthedot.schedule"
STATE: Final = "onthedot.state"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"

Attributes: TypeAlias = Mapping[str, str | int]
SpanState: TypeAlias = Literal["succeeded", "failed", "cancelled", "waiting", "requeued"]
_SCHEDULE_KEY = "schedule:"  # begins the unique key of a window


def of_send(tasks: Sequence[NewTask], schedule: str = "") -> Attributes:
    found: dict[str, str | int] = {SYSTEM: "onthedot", OPERATION_NAME: "send", OPERATION_TYPE: "send"}
    if destination := destination_of(tasks):
        found[DESTINATION] = destination
    if len(tasks) == 1:
        found[MESSAGE_ID] = tasks[0].uuid
    else:
        found[BATCH_COUNT] = len(tasks)
    if schedule:
        found[SCHEDULE] = schedule
    return found


def destination_of(tasks: Sequence[NewTask]) -> str:
    """The source; "" if there are several."""
    sources = {task.source for task in tasks}
    return sources.pop() if len(sources) == 1 else ""


def of_run(run: RunState) -> Attributes:
    record = run.record
    found: dict[str, str | int] = {
        SYSTEM: "onthedot",
        OPERATION_NAME: "process",
        OPERATION_TYPE: "process",
        DESTINATION: record.source,
        MESSAGE_ID: record.uuid,
        ATTEMPT: record.attempt,
        FENCE: run.lease.fence,
    }
    if run.headers.scheduled_for is not None and (record.unique or "").startswith(_SCHEDULE_KEY):
        found[SCHEDULE] = (record.unique or "").removeprefix(_SCHEDULE_KEY)
    return found


def of_settle() -> Attributes:
    return {SYSTEM: "onthedot", OPERATION_NAME: "settle", OPERATION_TYPE: "settle"}


def state_after(outcome: Outcome) -> SpanState:
    """How a run has ended."""
    if isinstance(outcome, Completed):
        return "succeeded"
    if isinstance(outcome, Ended):
        return outcome.state
    if isinstance(outcome, Suspended):
        return "waiting"
    return "requeued"
