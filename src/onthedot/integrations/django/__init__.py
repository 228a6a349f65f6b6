"""Django: a backend of ``django.tasks``, on Django 5.2 of ``django-tasks``, and ``manage.py onthedot``.

``pip install 'onthedot[django]'``. The name of the package is an entry of INSTALLED_APPS.
"""
# Django has no types.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.utils.module_loading import autodiscover_modules

from onthedot.api.app import App
from onthedot.errors import DeclarationError, TaskNotFound
from onthedot.integrations.django.checks import check_entry
from onthedot.integrations.django.framework import (
    BaseTaskBackend,
    DjangoTask,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    configured,
    plain_json,
    task_enqueued,
)
from onthedot.integrations.django.results import add_options, new_result, result_of
from onthedot.integrations.django.runs import DjangoRuns
from onthedot.integrations.django.sources import SourceName, TaskSources
from onthedot.model.options import TaskOptions
from onthedot.model.task import TaskInfo

__all__ = ["Backend", "get_app"]

_entries: dict[str, list[TaskSources]] = {}  # by alias, one per settings; Django makes one backend per thread
_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWithOptions(DjangoTask):
    """A Django task with options of this library: ``@task(options={"max_retries": 3})``."""

    options: TaskOptions = field(default_factory=TaskOptions, compare=False)


class Backend(BaseTaskBackend):
    """Stores Django's tasks in a store of onthedot, whose workers run them.

    Args:
        alias: The key in ``TASKS``.
        params: The entry: ``BACKEND``, ``QUEUES`` and ``OPTIONS``.

    ::

        TASKS = {
            "default": {
                "BACKEND": "onthedot.integrations.django.Backend",
                "OPTIONS": {"STORE": "postgresql://localhost/shop", "NAME": "shop", "JOIN": "default"},
            }
        }
    """

    task_class = TaskWithOptions
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self.sources: TaskSources = _sources_of(alias, params, self.queues, DjangoRuns(type(self), alias).function)

    def validate_task(self, task: Any) -> None:
        """Raises InvalidTask for one that cannot run. Every task passes here when it is declared.

        Args:
            task: The Django task.
        """
        super().validate_task(task)
        self.sources.declare(task)

    def enqueue(self, task: Any, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
        """Stores a task, with ``JOIN`` in the open transaction of that database. Returns its result, which is READY.

        Args:
            task: The Django task.
            args: Positional arguments, as JSON has them.
            kwargs: Named ones.
        """
        self.validate_task(task)
        positional = plain_json(list(args))
        named = plain_json(dict(kwargs))
        options = add_options(task)
        database = self._open_transaction()
        if database is not None:
            options["connection"] = database.connection
        function = self.sources.function(task)
        add = function.options(**options).delay if options else function.delay
        handle = add(*positional, **named)
        result = new_result(task, handle.uuid, positional, named, self.alias)
        if handle.added:
            send = partial(task_enqueued.send, type(self), task_result=result)
            if database is not None and database.in_atomic_block:
                transaction.on_commit(send, using=database.alias)
            else:
                send()
        return result

    async def aenqueue(self, task: Any, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
        """`enqueue` for async code.

        Args:
            task: The Django task.
            args: Positional arguments, as JSON has them.
            kwargs: Named ones.
        """
        if self.sources.options.JOIN is not None:  # the connection belongs to a thread
            return await sync_to_async(self.enqueue, thread_sensitive=True)(task, args, kwargs)
        self.validate_task(task)
        positional = plain_json(list(args))
        named = plain_json(dict(kwargs))
        options = add_options(task)
        function = self.sources.function(task)
        add = function.options(**options).enqueue if options else function.enqueue
        handle = await add(*positional, **named)
        result = new_result(task, handle.uuid, positional, named, self.alias)
        if handle.added:
            await task_enqueued.asend(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Returns a task as it is now. Raises TaskResultDoesNotExist, or TaskResultMismatch for one of another kind.

        Args:
            result_id: The id of the task.
        """
        try:
            info = self.sources.app.sync.get(result_id)
        except (TaskNotFound, ValueError) as error:
            raise TaskResultDoesNotExist(str(error)) from error
        return self._result(info)

    async def aget_result(self, result_id: str) -> Any:
        """`get_result` for async code.

        Args:
            result_id: The id of the task.
        """
        try:
            info = await self.sources.app.get(result_id)
        except (TaskNotFound, ValueError) as error:
            raise TaskResultDoesNotExist(str(error)) from error
        return await sync_to_async(self._result)(info)  # it may import modules

    def check(self, **kwargs: Any) -> Iterable[Any]:
        """Yields errors and warnings about the entry of ``TASKS``, for ``manage.py check``.

        Args:
            kwargs: Of Django; not used.
        """
        yield from super().check(**kwargs)
        yield from check_entry(self.alias, self.sources)

    def _open_transaction(self) -> Any:
        """The connection of Django that a task joins; None: it is stored at once."""
        join = self.sources.options.JOIN
        if join is None:
            return None
        database = connections[join]
        is_open = database.in_atomic_block or (database.connection is not None and not database.autocommit)
        return database if is_open else None

    def _result(self, info: TaskInfo) -> Any:
        path = SourceName.of(info.source).path
        if path not in self.sources.tasks:
            discover_tasks()
        task = self.sources.tasks.get(path)
        if task is None:
            raise TaskResultMismatch(f"task {info.uuid} is of {info.source!r}, which no tasks.py declares for Django")
        return result_of(info, task, self.alias)


def get_app(alias: str = "default") -> App[Any]:
    """Returns the app of an entry of ``TASKS``, for schedules, ``@app.task`` and all else that Django has no API for.

    Declare in a ``tasks.py``: workers import these modules of all INSTALLED_APPS.

    Args:
        alias: The key in ``TASKS``.

    ::

        app = get_app()

        @app.schedule("0 3 * * *")
        def clear_carts() -> None: ...
    """
    return _entry(alias).app


def get_worker_app(alias: str) -> App[Any]:
    """The app with all tasks of all ``tasks.py``, in all queues."""
    entry = _entry(alias)
    discover_tasks()
    entry.declare_sources()
    return entry.app


def discover_tasks() -> None:
    """Imports ``tasks.py`` of every installed app. Nothing is imported by a name that comes from a store."""
    autodiscover_modules("tasks")


def _entry(alias: str) -> TaskSources:
    found = configured[alias]
    if not isinstance(found, Backend):
        raise DeclarationError(
            f"TASKS[{alias!r}] is a {type(found).__name__}; its BACKEND must be onthedot.integrations.django.Backend"
        )
    return found.sources


def _sources_of(
    alias: str,
    params: Mapping[str, Any],
    queues: Iterable[str],
    runner: Callable[[TaskSources, str], Callable[..., Any]],
) -> TaskSources:
    """The same for all threads; other settings, as in tests, have an app of their own and the same tasks."""
    with _lock:
        made = _entries.setdefault(alias, [])
        for known in made:
            if known.params == params:
                return known
        tasks = made[0].tasks if made else {}
        made.append(TaskSources(params, queues, runner, tasks))
        return made[-1]
