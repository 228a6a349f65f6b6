"""The app: it declares tasks, adds them and runs them."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload
from weakref import WeakSet

from onthedot.api.agents import AppAgents
from onthedot.api.app_handles import AppHandles
from onthedot.api.app_lifecycle import AppLifecycle
from onthedot.api.app_shortcuts import AppShortcuts
from onthedot.api.batch_modes import Batches
from onthedot.api.batches import AppBatches, BatchSetup
from onthedot.api.events import AppEvents, EventVerbs
from onthedot.api.functions import NamedTask, ScheduledFunction, TaskFunction, new_tasks
from onthedot.api.handles import AsyncTaskHandle, TaskHandle
from onthedot.api.operations import AppOperations, SyncOperations
from onthedot.api.schedules import Schedules, SyncSchedules
from onthedot.api.stream_functions import StreamFunction
from onthedot.batches.policy import BatchPolicy
from onthedot.clock.durations import Duration
from onthedot.codec.body import Caps
from onthedot.definitions.consumers import BaseTaskConsumer
from onthedot.definitions.registry import DefinitionRegistry
from onthedot.engine.runner import Around
from onthedot.errors import BadSchedule, DeclarationError, SchedulerStateError
from onthedot.events.agent_registry import AgentRegistry
from onthedot.events.settings import Events, Kafka, as_events
from onthedot.executors.contract import Executor
from onthedot.flows.calls import Call
from onthedot.flows.signals import KEEP
from onthedot.model.familiar_names import APP, missing_attribute
from onthedot.model.flow_names import MAX_MEMBERS
from onthedot.model.options import TaskOptions, parse_bound
from onthedot.model.task import check_name
from onthedot.model.value_errors import SettingError
from onthedot.observability.logs import LogObserver
from onthedot.operations.audit import system_user
from onthedot.runtime.config import RuntimeConfig, check_poll_interval, check_stop_timeout, slots_by_executor
from onthedot.runtime.lifespan import check_include, check_lifespan
from onthedot.runtime.runtime import Runtime
from onthedot.runtime.settings import store_url
from onthedot.runtime.user_code import calling_module
from onthedot.schedules.cron import Zone

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultingTypeVar

    S = DefaultingTypeVar("S", default=None)
else:
    S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_DEFAULT_CAPS = Caps()

open_apps: WeakSet[App[Any]] = WeakSet()  # for the pytest plugin, which takes the only app of a process


class _Decorator(Protocol):
    """``@app.task(…)``: the result of an async function is what it returns when awaited."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskFunction[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, AsyncIterable[T]], /
    ) -> StreamFunction[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R, R]: ...


class App(AppAgents, AppBatches, AppEvents, AppHandles, AppLifecycle, AppShortcuts, Generic[S]):
    """Declares tasks, adds them to a store and runs them.

    `operations` finds and changes tasks of all processes, `schedules` their schedules; `sync` has both for sync code.
    `runtime` is for the packages of this project and may change in any release.

    Args:
        name: Separates apps that share a store.
        store: URL of the store; by default ``$ONTHEDOT_STORE``, else the file ``onthedot.db`` in the current folder.
        lifespan: Makes an async context manager that surrounds a worker; what it yields is ``app.state``.
        include: Modules that a worker imports, for the tasks that they declare.
        tz: Time zone of schedules that name none.
        defaults: Options of every task that does not set them itself.
        concurrency: How many async tasks run at once in a process; 1: one task at a time, of any kind.
        threads: How many tasks run in threads at once; by default the number of cores + 4, at most 32.
        processes: How many tasks run in processes at once; by default the number of cores.
        max_workers: Sets `threads` and `processes`, where they are not given.
        task_timeout: Default of the option `timeout`.
        stop_timeout: How long running tasks may go on at a stop; then they are cancelled and run again later. None:
            without a limit.
        poll_interval: How often a worker looks at the store without being notified.
        max_pending: How many tasks may be pending in all processes together; above it an add raises `StoreFull`.
        max_kept: How many ended tasks are kept at most.
        max_flow: How many tasks one flow has at most before its last one, up to 100,000.
        executors: Your own executors by name, for the option `executor`.
        caps: The largest size of arguments and results.
        events: How events are published and received: `Events`, `Kafka` or its URL, such as ``kafka://host:9092``; by
            default ``$ONTHEDOT_BUS``, else the store is the bus.
        agents: Agents that it runs, if it shares them with other apps; by default it has a registry of its own.
        logger: Takes all log lines of the app, instead of the loggers ``onthedot.…``.

    >>> app = App("shop", store="memory://")
    >>> @app.task(max_retries=3)
    ... async def greet(name: str) -> str:
    ...     return f"hello {name}"
    >>> with app.background():
    ...     greet.delay("ann").result(timeout=5)
    'hello ann'
    """

    def __init__(
        self,
        name: str = "onthedot",
        *,
        store: str | None = None,
        lifespan: Callable[[], AbstractAsyncContextManager[S]] | None = None,
        include: Iterable[str] = (),
        tz: Zone = "UTC",
        defaults: TaskOptions | None = None,
        concurrency: int = 100,
        threads: int | None = None,
        processes: int | None = None,
        max_workers: int | None = None,
        task_timeout: Duration | None = None,
        stop_timeout: Duration | None = 5,
        poll_interval: Duration = 10,
        max_pending: int | None = None,
        max_kept: int = 1_000_000,
        max_flow: int = 10_000,
        executors: Mapping[str, Executor] | None = None,
        caps: Caps = _DEFAULT_CAPS,
        events: Events | Kafka | str | None = None,
        agents: AgentRegistry | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self.name: str = check_name(name, "name of the app")
        config = RuntimeConfig(
            name=self.name,
            url=store_url(store) if store is not None or "ONTHEDOT_STORE" in os.environ else None,
            logs=LogObserver(logger),
            slots=slots_by_executor(concurrency, threads, processes, max_workers),
            one_pool=concurrency == 1,
            poll_interval=check_poll_interval(poll_interval),
            stop_timeout=check_stop_timeout(stop_timeout),
            lifespan=check_lifespan(lifespan),
            include=check_include(include),
            executors=dict(executors or {}),
            module=calling_module(),
            max_kept=parse_bound(max_kept, "max_kept", least=0),
            events=as_events(events),
            max_pending=None if max_pending is None else parse_bound(max_pending, "max_pending"),
        )
        options: TaskOptions = {**(defaults or {})}
        if task_timeout is not None:
            options.setdefault("timeout", task_timeout)
        self._registry = DefinitionRegistry(options, tz, caps, config.executors)
        self._registry.owner.max_flow = _check_max_flow(max_flow)
        self.runtime: Runtime = Runtime(config, self._registry)
        self._portal = self.runtime.portal
        self.schedules: Schedules = Schedules(self.runtime)
        self._verbs: AppOperations = AppOperations(self._portal, lambda: self.runtime.outbox_portal)
        self.operations: AppOperations = self._verbs.acting_as(system_user())
        self._batch_setup: BatchSetup = BatchSetup(self.runtime)
        self.batches: Batches = Batches(self._portal)
        self._events = EventVerbs(self.runtime)
        self.sync: SyncOperations = SyncOperations(
            self._portal, SyncSchedules(self.runtime), self._batch_setup, self._events
        )
        self.agents: AgentRegistry = self.runtime.agents.listen_to(agents)
        open_apps.add(self)

    if not TYPE_CHECKING:  # type checkers refuse the name themselves

        def __getattr__(self, name: str) -> object:
            raise missing_attribute(self, name, APP)

    # -- declaring

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> TaskFunction[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[P, AsyncIterable[T]], /
    ) -> StreamFunction[P, T]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> TaskFunction[P, R, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        schedule: object = None,
        batch: BatchPolicy | None = None,
        **options: Unpack[TaskOptions],
    ) -> _Decorator: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        schedule: object = None,
        batch: BatchPolicy | None = None,
        **options: Any,
    ) -> Any:
        """Declares a function as a task: ``@app.task``, or ``@app.task(max_retries=3)``.

        Args:
            function: The function, where the decorator has no options. An async generator becomes a `StreamFunction`.
            name: Source of its tasks; by default the name of the function.
            aliases: Former names, whose tasks it runs too.
            schedule: When it runs by itself: a cron str, timedelta, time, aware datetime or a rule
            batch: How ``app.batch`` makes items with it in parts. The task returns a list.
            options: See `TaskOptions`.
        """
        if not isinstance(aliases, str):
            aliases = tuple(aliases)

        def decorate(function: Callable[..., Any]) -> Any:
            definition = self._registry.function(function, name, aliases, schedule, cast(TaskOptions, options))
            if batch is not None:
                self._batch_setup.declare(definition, batch, aliases)
            if definition.is_stream:
                return StreamFunction[Any, Any](self._portal, definition)
            return TaskFunction[Any, Any, Any](self._portal, definition)

        return decorate if function is None else decorate(function)

    def schedule(
        self, schedule: object = None, *, name: str | None = None, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], ScheduledFunction[P, R]]:
        """Declares a function that runs only on schedule.

        Args:
            schedule: A cron str, timedelta, time, aware datetime, or a rule such as `CronSchedule`.
            name: Source of its tasks and name of the schedule; by default the name of the function.
            options: See `TaskOptions`.
        """
        if schedule is None or (callable(schedule) and not hasattr(schedule, "next_after")):
            on = "" if schedule is None else f" on {schedule!r}"
            raise BadSchedule(f'@app.schedule{on} has no rule: write @app.schedule("0 3 * * *") or another rule')

        def decorate(function: Callable[P, R]) -> ScheduledFunction[P, R]:
            return ScheduledFunction(self._registry.function(function, name, (), schedule, options))

        return decorate

    def register(self, consumer: BaseTaskConsumer) -> None:
        """Declares a consumer. An app does not read the global registry.

        Args:
            consumer: An instance of a `BaseTaskConsumer`.
        """
        self._registry.consumer(consumer)

    def around(self, layer: Around) -> Around:
        """Declares middleware, as a decorator. The first declared is the outermost.

        Args:
            layer: ``async def layer(task, call): return await call()``; it gets the `Task` and the next layer.
        """
        if not inspect.iscoroutinefunction(layer):
            raise DeclarationError(f"@app.around goes on an async function (task, call), not on {layer!r}")
        self.runtime.middleware.append(layer)
        return layer

    # -- adding

    def named(self, name: str) -> NamedTask:
        """Returns a source, to add its tasks without its code; arguments are checked where they run.

        Args:
            name: The name of the source.
        """
        return NamedTask(self._portal, self._registry.by_name(name), {})

    def delay_many(self, calls: Iterable[Call[R]]) -> list[TaskHandle[R]]:
        """Adds calls of any functions in one step, for sync code; all are checked before the first is stored.

        Args:
            calls: Such as ``[send.s("a"), build.s("x", "y")]``.
        """
        made = new_tasks(self._portal, calls)
        many = self._portal.run_sync(lambda client: client.add_many(made.tasks, made.remote), adds=made.tasks)
        return [TaskHandle(self._portal, *answer) for answer in made.answers(many)]

    async def enqueue_many(self, calls: Iterable[Call[R]]) -> list[AsyncTaskHandle[R]]:
        """Adds calls of any functions in one step; all are checked before the first is stored.

        Args:
            calls: Such as ``[send.s("a"), build.s("x", "y")]``.
        """
        made = new_tasks(self._portal, calls)
        many = await self._portal.run(lambda client: client.add_many(made.tasks, made.remote), adds=made.tasks)
        return [AsyncTaskHandle(self._portal, *answer) for answer in made.answers(many)]

    async def signal(
        self,
        name: str,
        payload: object = None,
        *,
        id: str | None = None,  # noqa: A002 - as senders know it
        keep: Duration = KEEP,
    ) -> bool:
        """Sends a signal to every task that waits under the name, now or later. False: its id is kept already.

        Args:
            name: Name of the signal.
            payload: A value that the waiting task gets.
            id: Makes a repeat harmless: the first payload per name and id is kept.
            keep: How long it is kept, for tasks that wait later; at least 24 hours.
        """
        return await self._verbs.signal(name, payload, id=id, keep=keep)

    # -- running

    @property
    def state(self) -> S:
        """The value that ``lifespan`` yielded, while a worker runs in this process."""
        if self.runtime.config.lifespan is not None and not self.runtime.lifespan_entered:
            raise SchedulerStateError("app.state is there only where tasks run: lifespan() has not been entered here")
        return cast(S, self.runtime.state)


def _check_max_flow(value: int) -> int:
    if parse_bound(value, "max_flow") > MAX_MEMBERS:
        raise SettingError(f"max_flow must be at most {MAX_MEMBERS:,}, not {value!r}")
    return value
