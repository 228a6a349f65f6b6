"""The functions of Django tasks as sources of an app: one source per function and queue."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from onthedot.api.app import App
from onthedot.api.functions import TaskFunction
from onthedot.integrations.django.framework import DEFAULT_QUEUE
from onthedot.integrations.django.settings import DjangoOptions
from onthedot.model.options import TaskOptions

SEPARATOR = ":"  # between queue and function in the name of a source; no path of a function has it


class SourceName(NamedTuple):
    """A queue and the path of a function.

    >>> str(SourceName("default", "shop.tasks.send")), str(SourceName("gpu", "shop.tasks.render"))
    ('shop.tasks.send', 'gpu:shop.tasks.render')
    >>> SourceName.of("gpu:shop.tasks.render")
    SourceName(queue='gpu', path='shop.tasks.render')
    """

    queue: str
    path: str

    @classmethod
    def of(cls, source: str) -> SourceName:
        queue, _, path = source.rpartition(SEPARATOR)
        return cls(queue or DEFAULT_QUEUE, path)

    def __str__(self) -> str:
        if self.queue == DEFAULT_QUEUE:
            return self.path
        return f"{self.queue}{SEPARATOR}{self.path}"


class TaskSources:
    """The tasks of one entry of TASKS, and its app. Nothing is imported by a name that comes from a store.

    runner: makes the function of a source from the path of a task
    tasks: Django tasks by the path of their function, as they were declared
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        queues: Iterable[str],
        runner: Callable[[TaskSources, str], Callable[..., Any]],
        tasks: dict[str, Any],
    ) -> None:
        self.params = params
        self.options: DjangoOptions = DjangoOptions.of(params.get("OPTIONS", {}))
        self.queues: frozenset[str] = frozenset(queues)
        self.tasks: dict[str, Any] = tasks
        self._runner = runner
        self._known_queues = {DEFAULT_QUEUE}
        self._sources: dict[str, TaskFunction[..., Any, Any]] = {}
        self._app: App[Any] | None = None
        self._lock = threading.RLock()

    @property
    def app(self) -> App[Any]:
        """Made at its first use, so that system checks can report what is wrong with its settings."""
        with self._lock:
            if self._app is None:
                options = self.options
                self._app = App(options.NAME, store=options.STORE, defaults=options.DEFAULTS)
            return self._app

    def declare(self, task: Any) -> None:
        """Makes a task known. A copy of it with another queue makes the queue known, too."""
        path: str = task.module_path
        known = self.tasks.get(path)
        if known is None or known.func is not task.func:
            self.tasks[path] = task
        self._known_queues.add(task.queue_name)

    def function(self, task: Any) -> TaskFunction[..., Any, Any]:
        """The function of the app that adds this task."""
        return self._source(SourceName(task.queue_name, task.module_path))

    def declare_sources(self) -> None:
        """Makes the app run all tasks that were declared, from all queues."""
        for path in list(self.tasks):
            for queue in self.queues or self._known_queues:
                self._source(SourceName(queue, path))

    def _source(self, name: SourceName) -> TaskFunction[..., Any, Any]:
        text = str(name)
        with self._lock:
            known = self._sources.get(text)
            if known is None:
                options: TaskOptions = getattr(self.tasks[name.path], "options", None) or TaskOptions()
                function = self._runner(self, name.path)
                known = self._sources[text] = self.app.task(name=text, **options)(function)
            return known

    def is_async(self, path: str) -> bool:
        """Whether the function of a task is a coroutine function."""
        return inspect.iscoroutinefunction(self.tasks[path].func)
