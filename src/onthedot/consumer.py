"""Row A: a consumer makes and does one kind of task; a registry knows them all."""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from onthedot.codec import Headers, decode_open, encode_open_result
from onthedot.context import current_task
from onthedot.errors import DuplicateTask
from onthedot.limits import Limits
from onthedot.options import Options, TaskOptions, resolve
from onthedot.stores.contract import Limit
from onthedot.task import Task, check_name
from onthedot.views import schedule_at

_log = logging.getLogger("onthedot.scheduler")


class BaseTaskConsumer(ABC):
    """One kind of task: how it is made and how it is done.

    The options of ``@app.task`` may be class attributes (``max_retries = 3``); ``concurrent_count`` is how many run at
    once in one process.

    >>> class Email(BaseTaskConsumer):
    ...     name = "email"
    ...     async def consume(self, task: Task) -> None: ...
    >>> Email().produce({"to": "ann"}).args
    {'to': 'ann'}
    """

    name: str = ""
    concurrent_count: int = 1

    def produce(self, args: Mapping[str, Any] | None = None) -> Task:
        """A task of this kind, due now. Override it to check or to schedule."""
        return Task(self.name, args)

    @abstractmethod
    def consume(self, task: Task) -> Any:
        """Does the task: an ``async def``, or a plain one, which runs in a thread."""


class ConsumerSource:
    """A consumer, as the engine sees it."""

    def __init__(self, consumer: BaseTaskConsumer, defaults: TaskOptions | None = None) -> None:
        self.consumer = consumer
        self.name = consumer.name
        names = TaskOptions.__annotations__
        said = {name: getattr(consumer, name) for name in names if getattr(consumer, name, None) is not None}
        self.options: Options = resolve(f"consumer {self.name!r}", defaults or {}, cast(TaskOptions, said))
        self._limits = Limits(self.name, self.options.concurrency, self.options.rate_limit, self.options.limits, None)
        self._is_async = inspect.iscoroutinefunction(consumer.consume)
        self._warned = False

    @property
    def executor(self) -> str:
        return self.options.executor or ("async" if self._is_async else "thread")

    def room(self) -> int:
        """Read at each claim, so that it can be changed while running."""
        try:
            count = self.consumer.concurrent_count
            if isinstance(count, int) and not isinstance(count, bool) and count >= 1:
                return count
            problem = f"{count!r} is not a whole number from 1"
        except Exception as error:  # noqa: BLE001 - a property of the user's may do anything; it is told below
            problem = repr(error)
        if not self._warned:
            self._warned = True
            _log.warning("concurrent_count of consumer %s: %s; taking 1", self.name, problem)
        return 1

    def decode(self, body: bytes) -> tuple[dict[str, Any], Headers]:
        return decode_open(body)

    def call(self, arguments: dict[str, Any]) -> object:
        run = current_task()
        at = schedule_at(run.record, run.headers)
        return self.consumer.consume(Task(run.source, arguments, at, run.uuid))

    def encode(self, value: object) -> bytes:
        return encode_open_result(value)

    def limits(self) -> list[Limit]:
        return self._limits.records()

    def lane(self, args: Mapping[str, Any]) -> tuple[str | None, float]:
        return self._limits.lane(args)


if TYPE_CHECKING:
    on_class_or_instance = classmethod
else:

    class on_class_or_instance:  # noqa: N801 - reads like classmethod, which it extends
        """A method of the class (the global registry) and of each instance (a registry of its own)."""

        def __init__(self, function: Callable[..., Any]) -> None:
            self._function = function
            self.__doc__ = function.__doc__

        def __get__(self, instance: object, owner: type) -> Callable[..., Any]:
            return self._function.__get__(owner if instance is None else instance)


class TaskConsumerRegistry:
    """Consumers by name. The class itself is the global registry; ``TaskConsumerRegistry()`` makes one of one's own.

    >>> registry = TaskConsumerRegistry()
    >>> class Email(BaseTaskConsumer):
    ...     name = "email"
    ...     async def consume(self, task: Task) -> None: ...
    >>> registry.register(Email())
    >>> registry.find("email").name
    'email'
    """

    sources: dict[str, BaseTaskConsumer] = {}  # noqa: RUF012 - the global one; an instance has its own
    _watchers: list[Callable[[], None]] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.sources = {}
        self._watchers = []

    @on_class_or_instance
    def register(cls, consumer: BaseTaskConsumer) -> None:
        """Adds a consumer. Schedulers that run notice it at once."""
        if isinstance(consumer, type):
            raise TypeError(f"register() takes a consumer, not a class: register({consumer.__name__}())")
        if not isinstance(consumer, BaseTaskConsumer):
            raise TypeError(f"register() takes a BaseTaskConsumer, not {type(consumer).__name__}")
        name = check_name(consumer.name, f"name of {type(consumer).__name__}")
        there = cls.sources.get(name)
        if there is not None and there is not consumer:
            raise DuplicateTask(f"{name!r} is taken by {type(there).__qualname__}: {type(consumer).__qualname__} needs another")
        ConsumerSource(consumer)  # refuses options that cannot be
        cls.sources[name] = consumer
        cls._changed()

    @on_class_or_instance
    def unregister(cls, name: str) -> None:
        """Removes a consumer; what it has waiting is unknown from now on."""
        if name not in cls.sources:
            raise KeyError(f"no consumer {name!r}")
        del cls.sources[name]
        cls._changed()

    @on_class_or_instance
    def clear(cls) -> None:
        cls.sources.clear()
        cls._changed()

    @on_class_or_instance
    def find(cls, name: str) -> BaseTaskConsumer | None:
        return cls.sources.get(name)

    @on_class_or_instance
    def watch(cls, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back when a consumer comes or goes; answers with the way to stop it."""
        cls._watchers.append(callback)
        return lambda: cls._watchers.remove(callback)

    @on_class_or_instance
    def _changed(cls) -> None:
        for callback in list(cls._watchers):
            callback()
