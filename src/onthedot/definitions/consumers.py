"""Consumers: classes that make and run one kind of task, and their registry."""

from __future__ import annotations

import inspect
import logging
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from onthedot.codec.body import Headers
from onthedot.codec.untyped import decode_untyped, decode_untyped_result, encode_untyped_result
from onthedot.definitions.new_task import TaskOwner, TaskTemplate, new_task_from
from onthedot.definitions.remote import RemoteDefinition
from onthedot.definitions.sources import check_function, module_of
from onthedot.errors import DeclarationError, DuplicateTask
from onthedot.model.context import current_run
from onthedot.model.executor_names import ASYNC, BUILT_IN, THREAD
from onthedot.model.limits import LimitDefinitions, check_shared_lanes
from onthedot.model.options import ResolvedOptions, TaskOptions, resolve
from onthedot.model.task import Task, check_name
from onthedot.model.task_info import schedule_at
from onthedot.schedules.cron import Zone
from onthedot.schedules.definition import ScheduleDefinition
from onthedot.schedules.rules import as_schedule
from onthedot.stores.contract import Limit, NewTask

_log = logging.getLogger("onthedot.scheduler")


class BaseTaskConsumer(ABC):
    """One kind of task: `produce` makes it, `consume` runs it.

    name: the source of its tasks
    concurrent_count: how many run at once in one process, read at each claim

    The options of ``@app.task`` may be class attributes, such as ``max_retries = 3``; see `TaskOptions`.

    >>> class Email(BaseTaskConsumer):
    ...     name = "email"
    ...     async def consume(self, task: Task) -> None: ...
    >>> Email().produce({"to": "ann"}).args
    {'to': 'ann'}
    """

    name: str = ""
    concurrent_count: int = 1

    def produce(self, args: Mapping[str, Any] | None = None) -> Task:
        """Returns a task of this kind, due now. Override it to check arguments or to set another time.

        Args:
            args: The arguments of the task, by name.
        """
        return Task(self.name, args)

    @abstractmethod
    def consume(self, task: Task) -> Any:
        """Runs the task: an ``async def``, or a plain function, which runs in a thread.

        Args:
            task: The task, equal to the one that was added.
        """


class ConsumerDefinition:
    """A consumer as a source."""

    is_remote = False

    def __init__(
        self, consumer: BaseTaskConsumer, defaults: TaskOptions | None = None, owner: TaskOwner | None = None
    ) -> None:
        self.consumer = consumer
        self.name: str = consumer.name
        self.module: str = module_of(type(consumer))
        names = TaskOptions.__annotations__
        options = {name: getattr(consumer, name) for name in names if getattr(consumer, name, None) is not None}
        self.options: ResolvedOptions = resolve(f"consumer {self.name!r}", defaults or {}, cast(TaskOptions, options))
        self._limits = LimitDefinitions(
            self.name, self.options.concurrency, self.options.rate_limit, self.options.limits, None
        )
        check_function(consumer.consume, f"consume of consumer {self.name!r}")
        self._is_async = inspect.iscoroutinefunction(consumer.consume)
        if self._is_async and self.options.executor == THREAD:
            raise DeclarationError(f"consumer {self.name!r}: an async consume runs on the event loop, not in a thread")
        if not self._is_async and self.options.executor == ASYNC:
            raise DeclarationError(
                f"consumer {self.name!r}: executor='async' takes an `async def consume`; a plain one would hold up the "
                "event loop and all that runs on it: leave executor out, and it runs in a thread"
            )
        self._warned = False
        self.owner: TaskOwner = owner or TaskOwner()
        self._template = TaskTemplate(self.owner, self.name, self.options, self._limits)
        self.schedule_definition()  # refuses an impossible schedule

    @property
    def executor(self) -> str:
        return self.options.executor or (ASYNC if self._is_async else THREAD)

    def max_running(self) -> int:
        """Reads `concurrent_count` at each claim, so that it can be changed while running."""
        try:
            count = self.consumer.concurrent_count
            if isinstance(count, int) and not isinstance(count, bool) and count >= 1:
                return count
            problem = f"{count!r} is not a whole number from 1"
        except Exception as error:  # noqa: BLE001 - a property of the user may raise anything; it is logged below
            problem = repr(error)
        if not self._warned:
            self._warned = True
            _log.warning("concurrent_count of consumer %s: %s; taking 1", self.name, problem)
        return 1

    def decode(self, body: bytes) -> tuple[dict[str, Any], Headers]:
        return decode_untyped(body)

    def call(self, arguments: dict[str, Any]) -> object:
        run = current_run()
        assert run is not None
        at = schedule_at(run.record, run.headers)
        return self.consumer.consume(Task(run.record.source, arguments, at, run.record.uuid))

    def encode(self, value: object) -> bytes:
        return encode_untyped_result(value)

    def decode_result(self, data: bytes) -> object:
        return decode_untyped_result(data)

    def limits(self, name: str) -> list[Limit]:
        return self._limits.to_limits(name)

    def as_remote(self) -> RemoteDefinition:
        """For adding by name: options and limits are known, parameters are not."""
        return RemoteDefinition(self._template.owner, self.name, self.options, self._limits)

    def new_task_from(self, task: Task, now: float = 0, *, timed: bool = True) -> NewTask:
        return new_task_from(self._template, task, now, timed=timed)

    def schedule_definition(self, tz: Zone = "UTC") -> ScheduleDefinition | None:
        """The schedule that a consumer may carry; its name is the source's."""
        schedule = getattr(self.consumer, "schedule", None)
        if schedule is None:
            return None
        rule = as_schedule(schedule, tz)
        return ScheduleDefinition(self.name, rule, self.new_task_from(self.consumer.produce(rule.args), timed=False))


if TYPE_CHECKING:
    on_class_or_instance = classmethod
else:

    class on_class_or_instance:  # noqa: N801 - reads like classmethod, which it extends
        """A method of the class, which is the global registry, and of each instance, a separate one."""

        def __init__(self, function: Callable[..., Any]) -> None:
            self._function = function
            self.__doc__ = function.__doc__

        def __get__(self, instance: object, owner: type) -> Callable[..., Any]:
            return self._function.__get__(owner if instance is None else instance)


class TaskConsumerRegistry:
    """Consumers by name. The class itself is the global registry; ``TaskConsumerRegistry()`` is a separate one.

    >>> registry = TaskConsumerRegistry()
    >>> class Email(BaseTaskConsumer):
    ...     name = "email"
    ...     async def consume(self, task: Task) -> None: ...
    >>> registry.register(Email())
    >>> registry.find("email").name
    'email'
    """

    sources: dict[str, BaseTaskConsumer] = {}  # noqa: RUF012 - the global one; an instance has its own
    watchers: list[weakref.WeakMethod[Callable[[], None]]] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.sources = {}
        self.watchers = []

    @on_class_or_instance
    def register(cls, consumer: BaseTaskConsumer) -> None:
        """Adds a consumer. Running schedulers take it over at once.

        Args:
            consumer: An instance of a `BaseTaskConsumer`.
        """
        if isinstance(consumer, type):
            raise DeclarationError(f"register() takes a consumer, not a class: register({consumer.__name__}())")
        if not isinstance(consumer, BaseTaskConsumer):
            raise DeclarationError(f"register() takes a BaseTaskConsumer, not {type(consumer).__name__}")
        name = check_name(consumer.name, f"name of {type(consumer).__name__}")
        known = cls.sources.get(name)
        if known is not None and known is not consumer:
            raise DuplicateTask(
                f"{name!r} is taken by {type(known).__qualname__}: {type(consumer).__qualname__} needs another"
            )
        source = ConsumerDefinition(consumer)  # refuses impossible options
        if source.options.executor not in (None, *BUILT_IN):
            raise DeclarationError(f"consumer {name!r}: no executor {source.options.executor!r}")
        cls._check_lanes(source)
        cls.sources[name] = consumer
        cls._changed()

    @on_class_or_instance
    def _check_lanes(cls, source: ConsumerDefinition) -> None:
        limits = source.limits(source.name)
        lanes: dict[str, Limit] = {}
        if any(limit.name[0] == "@" for limit in limits):
            for other in cls.sources.values():
                check_shared_lanes(lanes, other.name, ConsumerDefinition(other).limits(other.name))
            check_shared_lanes(lanes, source.name, limits)

    @on_class_or_instance
    def unregister(cls, name: str) -> None:
        """Removes a consumer; the source of its pending tasks is unknown from now on.

        Args:
            name: The name of the consumer.
        """
        if name not in cls.sources:
            raise KeyError(f"no consumer {name!r}")
        del cls.sources[name]
        cls._changed()

    @on_class_or_instance
    def clear(cls) -> None:
        """Removes all consumers."""
        cls.sources.clear()
        cls._changed()

    @on_class_or_instance
    def find(cls, name: str) -> BaseTaskConsumer | None:
        """Returns a consumer; None: there is none of this name.

        Args:
            name: The name of the consumer.
        """
        return cls.sources.get(name)

    @on_class_or_instance
    def watch(cls, callback: Callable[[], None]) -> None:
        """Calls back after every change, as long as the object of the method lives."""
        cls.watchers.append(weakref.WeakMethod(callback))

    @on_class_or_instance
    def _changed(cls) -> None:
        cls.watchers[:] = [watcher for watcher in cls.watchers if watcher() is not None]
        for watcher in list(cls.watchers):
            if (callback := watcher()) is not None:
                callback()
