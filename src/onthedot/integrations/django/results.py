"""Tasks of a store as Django's results."""
# Django has no types.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, assert_never

from django import conf
from django.utils import timezone

from onthedot.codec.task_failure import TaskFailure
from onthedot.integrations.django.framework import TaskError, TaskResult, TaskResultStatus
from onthedot.integrations.django.priorities import django_priority, stored_priority
from onthedot.integrations.django.sources import SourceName
from onthedot.model.options import AddOptions
from onthedot.model.task import TaskInfo, TaskState

_UNKNOWN_WORKER = "unknown"  # of an attempt whose worker died
_CANCELLED = "onthedot.errors.TaskCancelled"
_METADATA = "django"  # the key of what a store has no field for


def add_options(task: Any) -> AddOptions:
    """Options of the add for what differs from a plain call."""
    options: AddOptions = {}
    extra: dict[str, object] = {}
    if task.priority:
        stored = options["priority"] = stored_priority(task.priority)
        if django_priority(stored) != task.priority:
            extra["priority"] = task.priority
    if task.run_after is not None:
        options["at"] = _aware(task.run_after)
        extra["run_after"] = options["at"].isoformat()
    if extra:
        options["metadata"] = {_METADATA: extra}
    return options


def new_result(task: Any, uuid: str, args: list[Any], kwargs: dict[str, Any], alias: str) -> Any:
    """The result of a task that has just been added."""
    return TaskResult(
        task=task,
        id=uuid,
        status=TaskResultStatus.READY,
        enqueued_at=timezone.now(),
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def result_of(info: TaskInfo, task: Any, alias: str) -> Any:
    """task: the Django task whose function it runs."""
    raised = [failure for failure in info.errors if not _is_crash(failure)]  # Django's errors are exceptions
    failures = sorted(raised, key=lambda failure: failure.attempt)
    errors = [error_of(failure) for failure in failures]
    if info.state is TaskState.CANCELLED:
        errors.append(TaskError(exception_class_path=_CANCELLED, traceback=info.reason))
    elif info.error is not None and info.error not in failures:
        errors.append(error_of(info.error))
    starts = [failure.started_at for failure in failures if failure.started_at is not None]
    result = TaskResult(
        task=task_of(info, task, alias),
        id=info.uuid,
        status=status_of(info.state),
        enqueued_at=_local(info.added_at),
        started_at=_local(min([*starts, *([info.started_at] if info.started_at else [])], default=None)),
        finished_at=_local(info.ended_at),
        last_attempted_at=_local(info.started_at),
        args=list(_positional(info.args)),
        kwargs=dict(_named(info.args)),
        backend=alias,
        errors=errors,
        worker_ids=_worker_ids(info, failures),
    )
    object.__setattr__(result, "_return_value", info.result)
    return result


def _is_crash(failure: TaskFailure) -> bool:
    """Whether the attempt has ended with its worker, at a time that is not known."""
    return failure.started_at is not None and failure.ended_at is None


def task_of(info: TaskInfo, task: Any, alias: str) -> Any:
    """The Django task as it was enqueued."""
    extra = info.metadata.get(_METADATA, {})
    run_after = extra.get("run_after")
    return replace(
        task,
        queue_name=SourceName.of(info.source).queue,
        priority=extra.get("priority", django_priority(info.priority)),
        run_after=None if run_after is None else _local(datetime.fromisoformat(run_after)),
        backend=alias,
    )


def error_of(failure: TaskFailure) -> Any:
    path = failure.type if "." in failure.type else f"builtins.{failure.type}"
    return TaskError(exception_class_path=path, traceback=failure.traceback or failure.message)


def status_of(state: TaskState) -> Any:
    match state:
        case TaskState.SCHEDULED | TaskState.READY | TaskState.WAITING:
            return TaskResultStatus.READY
        case TaskState.RUNNING:
            return TaskResultStatus.RUNNING
        case TaskState.SUCCEEDED:
            return TaskResultStatus.SUCCESSFUL
        case TaskState.FAILED | TaskState.CANCELLED:
            return TaskResultStatus.FAILED
        case _:
            assert_never(state)


def _worker_ids(info: TaskInfo, failures: list[TaskFailure]) -> list[str]:
    """One per attempt."""
    has_run = info.state is TaskState.RUNNING or (info.state.ended and info.started_at is not None)
    workers = {failure.attempt: failure.worker for failure in failures}
    if has_run and info.worker:
        workers[info.attempt] = info.worker
    attempts = info.attempt if has_run else info.attempt - 1
    return [workers.get(attempt) or _UNKNOWN_WORKER for attempt in range(1, attempts + 1)]


def _positional(arguments: Mapping[str, Any]) -> Any:
    return arguments.get("args", ())


def _named(arguments: Mapping[str, Any]) -> Any:
    return arguments.get("kwargs", {})


def _aware(moment: datetime) -> datetime:
    """Without USE_TZ a time has no zone: it is one of the current zone."""
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def _local(moment: datetime | None) -> datetime | None:
    if moment is None or conf.settings.USE_TZ:
        return moment
    naive: datetime = timezone.make_naive(moment)
    return naive
