"""The table of routes. Server, OpenAPI, the reference and the test of credentials derive from it."""

from __future__ import annotations

from onthedot.web.change_routes import CHANGE_ROUTES
from onthedot.web.endpoints import NoBody, Route
from onthedot.web.event_schemas import AgentList, DeadLetterDetail, DeadLetterList, EventDetail, HandleRow
from onthedot.web.feature_schemas import AuditList, EventList, OutboxDetail
from onthedot.web.filters import TaskQuery
from onthedot.web.flow_schemas import BatchDetail, BatchRow, FlowDetail, FlowRow, SignalRow, StreamList, WaitingList
from onthedot.web.handlers import (
    agents,
    audit,
    batches,
    dead_letters,
    events,
    failures,
    flows,
    metrics,
    overview,
    schedules,
    series,
    session,
    signals,
    sources,
    streams,
    tasks,
    workers,
)
from onthedot.web.handlers.description import show_openapi
from onthedot.web.schedule_schemas import PlanDetail, ScheduleRow
from onthedot.web.schemas import (
    FailureList,
    Health,
    LimitRow,
    Overview,
    Rows,
    SignIn,
    SourceRow,
    StatusDetail,
    TaskList,
)
from onthedot.web.source_schemas import ChartDetail, SourceDetail
from onthedot.web.sse import ChangesQuery, follow_changes
from onthedot.web.task_schemas import ExplanationDetail, Segment, TaskDetail
from onthedot.web.worker_schemas import WorkerDetail, WorkerRow

READ_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET", path="/overview", handler=overview.show_overview, access="viewer", answer=Overview,
        query=overview.OverviewQuery, summary="The state of the app at a glance", has_etag=True,
    ),
    Route(
        method="GET", path="/status", handler=overview.show_status, access="viewer", answer=StatusDetail,
        summary="This process, its store and the caller",
    ),
    Route(
        method="GET", path="/tasks", handler=tasks.list_tasks, access="viewer", answer=TaskList, query=TaskQuery,
        summary="A page of tasks",
    ),
    Route(
        method="GET", path="/tasks/{uuid}", handler=tasks.show_task, access="viewer", answer=TaskDetail,
        query=tasks.DetailQuery, summary="A task in full", errors=("not_found", "ambiguous"),
    ),
    Route(
        method="GET", path="/tasks/{uuid}/explain", handler=tasks.explain_task, access="viewer",
        answer=ExplanationDetail, summary="Why a task is not running", errors=("not_found", "ambiguous"),
    ),
    Route(
        method="GET", path="/tasks/{uuid}/timeline", handler=tasks.show_timeline, access="viewer",
        answer=Rows[Segment], summary="The recorded parts of a task's life", errors=("not_found", "ambiguous"),
    ),
    Route(
        method="GET", path="/tasks/{uuid}/result", handler=tasks.show_result, access="viewer",
        summary="The result of a task as a JSON file", errors=("not_found", "ambiguous"),
    ),
    Route(
        method="GET", path="/tasks/{uuid}/items", handler=streams.list_items, access="viewer", answer=StreamList,
        query=streams.StreamQuery, summary="The saved items of a stream", errors=("not_found", "ambiguous"),
    ),
    Route(
        method="GET", path="/failures", handler=failures.list_failures, access="viewer", answer=FailureList,
        query=failures.FailureQuery, summary="Failed tasks, grouped by error", has_etag=True,
    ),
    Route(
        method="GET", path="/sources", handler=sources.list_sources, access="viewer", answer=Rows[SourceRow],
        summary="All sources", has_etag=True,
    ),
    Route(
        method="GET", path="/sources/{name}", handler=sources.show_source, access="viewer", answer=SourceDetail,
        query=sources.SourceQuery,
        summary="One source", errors=("not_found",),
    ),
    Route(
        method="GET", path="/limits", handler=sources.list_limits, access="viewer", answer=Rows[LimitRow],
        summary="All limits in force", has_etag=True,
    ),
    Route(
        method="GET", path="/schedules", handler=schedules.list_schedules, access="viewer",
        answer=Rows[ScheduleRow], summary="All schedules", has_etag=True,
    ),
    Route(
        method="GET", path="/schedules/{name}", handler=schedules.show_schedule, access="viewer", answer=ScheduleRow,
        summary="One schedule", errors=("not_found",),
    ),
    Route(
        method="GET", path="/schedules/{name}/plan", handler=schedules.show_plan, access="viewer", answer=PlanDetail,
        query=schedules.PlanQuery, summary="The next runs of a schedule", errors=("not_found",),
    ),
    Route(
        method="GET", path="/schedule-plan", handler=schedules.show_plan, access="viewer", answer=PlanDetail,
        query=schedules.PlanQuery, summary="The next runs of all schedules",
    ),
    Route(
        method="GET", path="/workers", handler=workers.list_workers, access="viewer", answer=Rows[WorkerRow],
        summary="Live workers, and those that died in the last ten minutes", has_etag=True,
    ),
    Route(
        method="GET", path="/workers/{id}", handler=workers.show_worker, access="viewer", answer=WorkerDetail,
        summary="A worker and the tasks that it runs", errors=("not_found", "ambiguous"),
    ),
    Route(
        method="GET", path="/flows", handler=flows.list_flows, access="viewer", answer=Rows[FlowRow],
        query=flows.FlowQuery, summary="The newest flows",
    ),
    Route(
        method="GET", path="/flows/{id}", handler=flows.show_flow, access="viewer", answer=FlowDetail,
        summary="A flow in full", errors=("not_found",),
    ),
    Route(
        method="GET", path="/batches", handler=batches.list_batches, access="viewer", answer=Rows[BatchRow],
        query=flows.FlowQuery, summary="The newest batches",
    ),
    Route(
        method="GET", path="/batches/{id}", handler=batches.show_batch, access="viewer", answer=BatchDetail,
        summary="A batch in full", errors=("not_found",),
    ),
    Route(
        method="GET", path="/batches/{id}/parts", handler=batches.list_parts, access="viewer", answer=StreamList,
        query=streams.StreamQuery, summary="The parts of a batch that have ended, with their items",
        errors=("not_found",),
    ),
    Route(
        method="GET", path="/waiting", handler=signals.list_waiting, access="viewer", answer=WaitingList,
        query=signals.WaitingQuery, summary="Tasks that wait for signals or for other tasks",
    ),
    Route(
        method="GET", path="/signals/{name:path}", handler=signals.list_signals, access="viewer",
        answer=Rows[SignalRow], query=signals.SignalQuery, summary="The signals that are kept under a name",
        errors=("not_found", "invalid"),
    ),
    Route(
        method="GET", path="/outbox", handler=events.show_outbox, access="viewer", answer=OutboxDetail,
        summary="Unsent events by topic, relays and groups", errors=("not_available",),
    ),
    Route(
        method="GET", path="/outbox/events", handler=events.list_events, access="viewer", answer=EventList,
        query=events.EventQuery, summary="Events of the outbox", errors=("not_available",),
    ),
    Route(
        method="GET", path="/outbox/events/{id}", handler=events.show_event, access="viewer", answer=EventDetail,
        summary="An event of the outbox with its payload", errors=("not_available", "not_found"),
    ),
    Route(
        method="GET", path="/dlt", handler=dead_letters.list_dead_letters, access="viewer", answer=DeadLetterList,
        query=dead_letters.DeadLetterQuery, summary="Dead letters, newest first",
        errors=("not_available", "bus_unavailable"),
    ),
    Route(
        method="GET", path="/dlt/{id}", handler=dead_letters.show_dead_letter, access="viewer",
        answer=DeadLetterDetail, summary="A dead letter with its payload",
        errors=("not_available", "not_found", "bus_unavailable"),
    ),
    Route(
        method="GET", path="/agents", handler=agents.list_agents, access="viewer", answer=AgentList,
        summary="All agents", errors=("not_available",),
    ),
    Route(
        method="GET", path="/resume-handles", handler=agents.list_handles, access="viewer", answer=Rows[HandleRow],
        query=agents.HandleQuery, summary="The resume handles of a correlation id", errors=("not_available",),
    ),
    Route(
        method="GET", path="/series", handler=series.show_series, access="viewer", answer=ChartDetail,
        query=series.SeriesQuery, summary="The work of all workers over time", has_etag=True,
    ),
    Route(
        method="GET", path="/changes", handler=follow_changes, access="viewer", query=ChangesQuery,
        media_type="text/event-stream", summary="Changes as server-sent events",
        errors=("too_many_streams", "not_found"),
    ),
    Route(
        method="GET", path="/audit", handler=audit.list_audit, access="viewer", answer=AuditList,
        query=audit.AuditQuery, summary="Changes by operators, newest first",
    ),
)  # fmt: skip

SESSION_ROUTES: tuple[Route, ...] = (
    Route(
        method="POST", path="/session", handler=session.sign_in, access="open", body=SignIn, status=204,
        summary="Exchange a token for a cookie", errors=("unauthorized", "forbidden", "too_many", "not_available"),
    ),
    Route(
        method="DELETE", path="/session", handler=session.sign_out, access="viewer", body=NoBody, status=204,
        summary="Clear the cookie",
    ),
    Route(
        method="GET", path="/openapi.json", handler=show_openapi, access="viewer", summary="This description",
    ),
    Route(
        method="GET", path="/metrics", prefix="", handler=metrics.show_metrics, access="viewer",
        media_type="text/plain", summary="The metrics of all workers, for Prometheus",
    ),
    Route(
        method="GET", path="/healthz", prefix="", handler=session.report_liveness, access="open", answer=Health,
        summary="The process lives",
    ),
    Route(
        method="GET", path="/readyz", prefix="", handler=session.report_readiness, access="open", answer=Health,
        summary="The store answers within a second",
    ),
)  # fmt: skip

ROUTES: tuple[Route, ...] = (*CHANGE_ROUTES, *READ_ROUTES, *SESSION_ROUTES)
