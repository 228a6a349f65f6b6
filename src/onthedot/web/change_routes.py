"""The routes that change something; `routes` has the others."""

from __future__ import annotations

from onthedot.web.bodies import (
    GivenReason,
    LimitBody,
    NewTaskBody,
    PauseBody,
    ReasonBody,
    ResumeBody,
    RetryBody,
    ScheduleBody,
    ScheduleEditBody,
    SignalBody,
    TopicPauseBody,
    TopicResumeBody,
)
from onthedot.web.endpoints import NoBody, Route
from onthedot.web.feature_schemas import BulkActionDetail, BulkPreview
from onthedot.web.flow_schemas import SignalSent
from onthedot.web.handlers import (
    batches,
    bulk_actions,
    dead_letters,
    events,
    flows,
    schedule_changes,
    signals,
    source_changes,
    task_changes,
)
from onthedot.web.schedule_schemas import ScheduleRow
from onthedot.web.schemas import AddedTask, Changed, LimitRow, SourceRow

_MAX_TASK = 1_310_720  # bytes of POST /tasks: 1.25 MiB
_BY_UUID = ("not_found", "ambiguous")

CHANGE_ROUTES: tuple[Route, ...] = (
    Route(
        method="POST", path="/tasks", handler=task_changes.add_task, access="operator", body=NewTaskBody,
        answer=AddedTask, status=201, other_answers={200: AddedTask}, max_body=_MAX_TASK, summary="Add a task",
        errors=("frozen", "store_full", "not_available"),
    ),
    Route(
        method="POST", path="/tasks/preview", handler=bulk_actions.preview, access="operator",
        body=bulk_actions.PreviewBody, answer=BulkPreview, summary="The tasks that a bulk action would change",
    ),
    Route(
        method="POST", path="/tasks/cancel", handler=bulk_actions.cancel_tasks, access="operator",
        body=bulk_actions.BulkBody, answer=BulkActionDetail, status=202, errors=("conflict",),
        summary="Cancel the tasks of a preview, or by uuid",
    ),
    Route(
        method="POST", path="/tasks/retry", handler=bulk_actions.retry_tasks, access="operator",
        body=bulk_actions.BulkBody, answer=BulkActionDetail, status=202, errors=("conflict",),
        summary="Retry the tasks of a preview, or by uuid",
    ),
    Route(
        method="GET", path="/bulk-actions/{id}", handler=bulk_actions.show_bulk_action, access="viewer",
        answer=BulkActionDetail, summary="The progress of a bulk action", errors=("not_found",),
    ),
    Route(
        method="DELETE", path="/bulk-actions/{id}", handler=bulk_actions.stop_bulk_action, access="operator",
        body=NoBody, answer=BulkActionDetail, summary="Stop a bulk action after its current step",
        errors=("not_found",),
    ),
    Route(
        method="POST", path="/tasks/{uuid}/cancel", handler=task_changes.cancel_task, access="operator",
        body=ReasonBody, answer=Changed, summary="Cancel a task", errors=_BY_UUID,
    ),
    Route(
        method="POST", path="/tasks/{uuid}/retry", handler=task_changes.retry_task, access="operator", body=RetryBody,
        answer=Changed, other_answers={201: AddedTask}, errors=(*_BY_UUID, "conflict", "not_available"),
        summary="Run a failed or cancelled task again, or a copy with other arguments",
    ),
    Route(
        method="POST", path="/sources/{name}/pause", handler=source_changes.pause_source, access="operator",
        body=PauseBody, answer=SourceRow, summary="Start no more tasks of a source, or of a key",
    ),
    Route(
        method="POST", path="/sources/{name}/resume", handler=source_changes.resume_source, access="operator",
        body=ResumeBody, answer=SourceRow, summary="End a pause",
    ),
    Route(
        method="POST", path="/sources/{name}/freeze", handler=source_changes.freeze_source, access="operator",
        body=GivenReason, answer=SourceRow, summary="Accept no new tasks of a source",
    ),
    Route(
        method="POST", path="/sources/{name}/thaw", handler=source_changes.thaw_source, access="operator",
        body=ReasonBody, answer=SourceRow, summary="Accept tasks of a source again",
    ),
    Route(
        method="POST", path="/sources/{name}/degrade", handler=source_changes.degrade_source, access="operator",
        body=GivenReason, answer=SourceRow, summary="Run new batches of a source in one part",
    ),
    Route(
        method="POST", path="/sources/{name}/restore", handler=source_changes.restore_source, access="operator",
        body=ReasonBody, answer=SourceRow, summary="Split new batches of a source again",
    ),
    Route(
        method="PUT", path="/limits/{name:path}", handler=source_changes.put_limit, access="operator", body=LimitBody,
        answer=LimitRow, summary="Change a limit for all processes",
    ),
    Route(
        method="POST", path="/schedules", handler=schedule_changes.create_schedule, access="operator",
        body=ScheduleBody, answer=ScheduleRow, status=201, summary="Create a schedule",
        errors=("conflict", "frozen", "not_available"),
    ),
    Route(
        method="PATCH", path="/schedules/{name}", handler=schedule_changes.edit_schedule, access="operator",
        body=ScheduleEditBody, answer=ScheduleRow, summary="Change a schedule that is data",
        errors=("not_found", "conflict", "precondition_failed", "frozen", "not_available"),
    ),
    Route(
        method="POST", path="/schedules/{name}/pause", handler=schedule_changes.pause_schedule, access="operator",
        body=ReasonBody, answer=ScheduleRow, summary="Pause a schedule", errors=("not_found",),
    ),
    Route(
        method="POST", path="/schedules/{name}/resume", handler=schedule_changes.resume_schedule, access="operator",
        body=ReasonBody, answer=ScheduleRow, summary="Resume a schedule", errors=("not_found",),
    ),
    Route(
        method="POST", path="/schedules/{name}/run", handler=schedule_changes.run_schedule, access="operator",
        body=ReasonBody, answer=AddedTask, status=201, other_answers={200: AddedTask}, summary="Run a schedule now",
        errors=("not_found",),
    ),
    Route(
        method="DELETE", path="/schedules/{name}", handler=schedule_changes.delete_schedule, access="operator",
        body=NoBody, status=204, summary="Delete a schedule that is data, or an orphan",
        errors=("not_found", "conflict", "precondition_failed"),
    ),
    Route(
        method="POST", path="/flows/{id}/cancel", handler=flows.cancel_flow, access="operator",
        body=flows.FlowActionBody, answer=BulkActionDetail, status=202, summary="Cancel all tasks of a flow",
        errors=("not_found",),
    ),
    Route(
        method="POST", path="/flows/{id}/retry", handler=flows.retry_flow, access="operator",
        body=flows.FlowActionBody, answer=BulkActionDetail, status=202, summary="Run the failed tasks of a flow again",
        errors=("not_found",),
    ),
    Route(
        method="POST", path="/batches/{id}/cancel", handler=batches.cancel_batch, access="operator", body=ReasonBody,
        answer=Changed, summary="Cancel a batch and its parts", errors=("not_found",),
    ),
    Route(
        method="POST", path="/signals/{name:path}", handler=signals.send_signal, access="operator", body=SignalBody,
        answer=SignalSent, summary="Send a signal", errors=("not_found",),
    ),
    Route(
        method="POST", path="/outbox/{id}/retry", handler=events.retry_event, access="operator", body=ReasonBody,
        answer=Changed, summary="Send a failed event again", errors=("not_available",),
    ),
    Route(
        method="POST", path="/outbox/{id}/discard", handler=events.discard_event, access="operator", body=GivenReason,
        answer=Changed, summary="Give a failed event up", errors=("not_available",),
    ),
    Route(
        method="POST", path="/outbox/pause", handler=events.pause_outbox, access="operator", body=TopicPauseBody,
        answer=Changed, summary="Send no events of a topic, or none at all", errors=("not_available",),
    ),
    Route(
        method="POST", path="/outbox/resume", handler=events.resume_outbox, access="operator", body=TopicResumeBody,
        answer=Changed, summary="Send the events of a topic again", errors=("not_available",),
    ),
    Route(
        method="POST", path="/dlt/replay", handler=dead_letters.replay_dead_letters, access="operator",
        body=dead_letters.ReplayBody, answer=BulkActionDetail, status=202, errors=("not_available", "bus_unavailable"),
        summary="Publish the events of dead letters again, for the agents that failed",
    ),
)  # fmt: skip
