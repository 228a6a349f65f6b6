"""Runs of Django tasks in a worker: the function of a source, around the function of the user."""
# Django has no types.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import random
from collections.abc import Callable
from traceback import format_exception
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, reset_queries
from django.utils import timezone

from onthedot.errors import TaskControl
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
            result = await sync_to_async(self._begin_async)(sources, state, task)
            try:
                try:
                    value = plain_json(await task.func(*_arguments(task, result, args), **kwargs))
                except BaseException as error:
                    if self._fail(state, result, error):
                        frames = error.__traceback__
                        await sync_to_async(self._send)(task_finished, result)
                        error.__traceback__ = frames  # without those of the thread that has seen it
                    raise
                self._succeed(result, value)
                await sync_to_async(self._send)(task_finished, result)
                return value
            finally:
                await sync_to_async(close_old_connections)()

        return run

    def _begin_async(self, sources: TaskSources, state: RunState, task: Any) -> Any:
        """On the thread of Django's connections in async code, which all async tasks share."""
        _begin()
        result = self._result(state, task, lambda: sources.app.sync.get(state.record.uuid))
        self._send(task_started, result)
        return result

    def _result(self, state: RunState, task: Any, read: Callable[[], TaskInfo]) -> Any:
        """Of the running task. Earlier attempts are read from the store; a first one needs no request."""
        info = task_info(state.record) if state.record.attempt == 1 else read()
        result = result_of(info, task, self._alias)
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
        if not isinstance(error, Exception | TaskControl | SystemExit):
            return False  # a wait, or the end of the worker
        outcome, error = outcome_for_error(error, state.record, state.lease, state.source.options, random.Random())
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


def _running() -> RunState:
    state = current_run()
    if state is None:
        raise RuntimeError("the function of a source was called outside of a worker")
    return state


def _begin() -> None:
    """As Django does before a request, on the thread of the run."""
    reset_queries()
    close_old_connections()
