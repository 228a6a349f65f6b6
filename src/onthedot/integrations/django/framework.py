"""Django's tasks, or those of the package ``django-tasks`` on Django 5.2: both have the same names.

Neither has types, so the names are of type Any here.
"""
# Django has no types.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    import django
except ImportError as _error:
    raise ImportError("onthedot.integrations.django needs Django: pip install 'onthedot[django]'") from _error


def _package() -> str:
    release: tuple[Any, ...] = django.VERSION
    if release >= (6, 0):
        return "django.tasks"
    try:
        import_module("django_tasks")
    except ImportError as error:
        raise ImportError(
            f"Django {django.get_version()} has no django.tasks: pip install django-tasks, or Django 6"
        ) from error
    return "django_tasks"


TASKS: str = _package()
"""The package that has the decorator `task`."""

_tasks: Any = import_module(TASKS)
_base: Any = import_module(f"{TASKS}.base")
_exceptions: Any = import_module(f"{TASKS}.exceptions")
_signals: Any = import_module(f"{TASKS}.signals")

if TYPE_CHECKING:

    class BaseTaskBackend:
        """As far as this package uses it."""

        alias: str
        queues: set[str]

        def __init__(self, alias: str, params: Mapping[str, Any]) -> None: ...
        def validate_task(self, task: Any) -> None: ...
        def check(self, **kwargs: Any) -> Iterable[Any]: ...

    class DjangoTask:
        """One that is declared by ``@task``."""
else:
    BaseTaskBackend = import_module(f"{TASKS}.backends.base").BaseTaskBackend
    DjangoTask = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
TaskResultMismatch: Any = _exceptions.TaskResultMismatch
DEFAULT_QUEUE: str = _base.DEFAULT_TASK_QUEUE_NAME
configured: Any = _tasks.task_backends
"""The entries of the setting TASKS, by alias."""
task_enqueued: Any = _signals.task_enqueued
task_started: Any = _signals.task_started
task_finished: Any = _signals.task_finished


def plain_json(value: object) -> Any:
    """The value as JSON has it, such as a plain text for one of TextChoices. Raises for a value that JSON has not."""
    return json.loads(json.dumps(_base.normalize_json(value)))
