"""Runs of Django tasks in a worker: the function of a source, around the function of the user."""
# Django has no types.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import random
from asyncio import CancelledError
from collections.abc import Callable
from traceback import format_exception
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, reset_queries
from django.utils import timezone

from onthedot.errors import Snooze, StoreError, TaskControl
from onthedot.integrations.django.framework import (
    TaskContext,
    TaskError,
    TaskResultStatus,
    plain_json,
    task_finished,
    task_started,
)
from onthedot.integrations.django.results import result_of
from onthedot.integrations.django.sources import TaskSources
from onthedot.model.context import RunState, current_run
from onthedot.model.error_policy import outcome_for_error
from onthedot.model.task import TaskInfo
from onthedot.model.task_info import task_info
from onthedot.stores.contract import Ended

_READ_AGAIN = 1  # seconds


class DjangoRuns:
    """Makes the functions that a worker calls for the tasks of one entry of TASKS.

    sender: of the signals
    alias: of the entry
    """

    def __init__(self, sender: type, alias: str) -> None:
        self._sender = sender
        self._alias = alias

    def function(self, sources: TaskSources, path: str) -> Callable[..., Any]:
        """The function of a source."""
        if sources.is_async(path):
            return self._async_function(sources, path)
        return self._sync_function(sources, path)

    def _sync_function(self, sources: TaskSources, path: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            task = sources.tasks[path]
            state = _running()
            _begin()
            try:
                result = self._result(state, task, lambda: sources.app.sync.get(state.record.uuid))
                self._send(task_started, result)
                try:
                    value = plain_json(task.func(*_arguments(task, result, args), **kwargs))
                except BaseException as error:
                    if self._fail(state, result, error):
                        self._send(task_finished, result)
                    raise
                self._succeed(result, value)
                self._send(task_finished, result)
                return value
            finally:
                close_old_connections()

        return run

    def _async_function(self, sources: TaskSources, path: str) -> Callable[..., Any]:
        async def run(*args: Any, **kwargs: Any) -> Any:
            task = sources.tasks[path]
            state = _running()
            started: list[Any] = []
            try:
                try:
                    await sync_to_async(self._begin_async)(sources, state, task, started)
                    (result,) = started
                    value = plain_json(await task.func(*_arguments(task, result, args), **kwargs))
                except BaseException as error:
                    if started and self._fail(state, started[0], error):
                        frames = error.__traceback__
                        await sync_to_async(self._send)(task_finished, started[0])
                        error.__traceback__ = frames  # without those of the thread that has seen it
                    raise
                self._succeed(result, value)
                await sync_to_async(self._send)(task_finished, result)
                return value
            finally:
                await sync_to_async(close_old_connections)()

        return run

    def _begin_async(self, sources: TaskSources, state: RunState, task: Any, started: list[Any]) -> None:
        """On the thread of Django's connections in async code, which all async tasks share.

        started: gets the result whose start is sent, also if the run is cancelled meanwhile
        """
        _begin()
        result = self._result(state, task, lambda: sources.app.sync.get(state.record.uuid))
        started.append(result)
        self._send(task_started, result)

    def _result(self, state: RunState, task: Any, read: Callable[[], TaskInfo]) -> Any:
        """Of the running task. Earlier attempts are read from the store; a first one needs no request."""
        result = result_of(_info(state, read), task, self._alias)
        now = timezone.now()
        object.__setattr__(result, "status", TaskResultStatus.RUNNING)
        object.__setattr__(result, "started_at", result.started_at or now)
        object.__setattr__(result, "last_attempted_at", now)
        del result.worker_ids[state.record.attempt - 1 :]
        result.worker_ids.append(state.lease.session)
        return result

    def _succeed(self, result: Any, value: Any) -> None:
        object.__setattr__(result, "_return_value", value)
        object.__setattr__(result, "finished_at", timezone.now())
        object.__setattr__(result, "status", TaskResultStatus.SUCCESSFUL)

    def _fail(self, state: RunState, result: Any, error: BaseException) -> bool:
        """Returns whether the task has ended with this error; a retry has not. The engine takes the same decision."""
        deciding = state.deciding_error(error)
        if not isinstance(deciding, Exception | TaskControl | SystemExit | CancelledError):
            return False  # a wait, or the end of the worker
        outcome, error = outcome_for_error(deciding, state.record, state.lease, state.source.options, random.Random())
        if not isinstance(outcome, Ended):
            return False
        error_class = type(error)
        path = f"{error_class.__module__}.{error_class.__qualname__}"
        result.errors.append(TaskError(exception_class_path=path, traceback="".join(format_exception(error))))
        object.__setattr__(result, "finished_at", timezone.now())
        object.__setattr__(result, "status", TaskResultStatus.FAILED)
        return True

    def _send(self, signal: Any, result: Any) -> None:
        """A receiver that raises is logged by Django, and does not change the end of the task."""
        signal.send_robust(sender=self._sender, task_result=result)


def _arguments(task: Any, result: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if task.takes_context:
        return (TaskContext(task_result=result), *args)
    return args


def _info(state: RunState, read: Callable[[], TaskInfo]) -> TaskInfo:
    if state.record.attempt == 1:
        return task_info(state.record)
    try:
        return read()
    except StoreError as error:  # not an error of the task: it uses up no retry
        state.reports.log.warning("%s runs again in %s s: %s", state.record.source, _READ_AGAIN, error)
        raise Snooze(_READ_AGAIN) from error


def _running() -> RunState:
    state = current_run()
    if state is None:
        raise RuntimeError("the function of a source was called outside of a worker")
    return state


def _begin() -> None:
    """As Django does before a request, on the thread of the run."""
    reset_queries()
    close_old_connections()
