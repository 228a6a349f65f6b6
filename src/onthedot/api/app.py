"""The app: declares, adds, runs."""

from __future__ import annotations

import atexit
import inspect
import logging
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload
from weakref import WeakSet

from onthedot.api.functions import Call, NamedTask, ScheduledFunction, TaskFunction
from onthedot.api.handles import AsyncTaskHandle, TaskHandle
from onthedot.api.schedules import Schedules, SyncSchedules
from onthedot.client.portal import Portal
from onthedot.clock.durations import Duration
from onthedot.clock.protocol import Clock
from onthedot.codec.body import Caps
from onthedot.codec.untyped import decode_untyped_result
from onthedot.definitions.consumers import BaseTaskConsumer
from onthedot.definitions.registry import DefinitionRegistry
from onthedot.engine.runner import Around
from onthedot.errors import BadSchedule, SchedulerStateError
from onthedot.executors.contract import Executor
from onthedot.model.options import TaskOptions, parse_bound
from onthedot.model.task import TaskInfo, check_name
from onthedot.observability.logs import LogObserver
from onthedot.operations.explain import Explanation
from onthedot.operations.task_queries import TaskFilter, TaskPage
from onthedot.runtime.config import RuntimeConfig, check_poll_interval, check_stop_timeout, slots_by_executor
from onthedot.runtime.runtime import Runtime
from onthedot.runtime.settings import store_url
from onthedot.runtime.user_code import ImportState, calling_module, extend_import_deadline, forbid_during_import
from onthedot.schedules.cron import Zone

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultingTypeVar

    S = DefaultingTypeVar("S", default=None)
else:
    S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")

_DEFAULT_CAPS = Caps()

open_apps: WeakSet[App[Any]] = WeakSet()  # for the pytest plugin: the only app of a process needs no naming


class _Decorator(Protocol):
    """``@app.task(…)``: knows an async function from a sync one."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskFunction[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R, R]: ...


class App(Generic[S]):
    """Tasks and the way to run them.

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
        executors: Mapping[str, Executor] | None = None,
        caps: Caps = _DEFAULT_CAPS,
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
            lifespan=lifespan,
            include=tuple(include),
            executors=dict(executors or {}),
            module=calling_module(),
            max_kept=parse_bound(max_kept, "max_kept", least=0),
            max_pending=None if max_pending is None else parse_bound(max_pending, "max_pending"),
        )
        options: TaskOptions = {**(defaults or {})}
        if task_timeout is not None:
            options.setdefault("timeout", task_timeout)
        self._registry = DefinitionRegistry(options, tz, caps, config.executors)
        self.runtime: Runtime = Runtime(config, self._registry)
        self._portal = self.runtime.portal
        self.schedules: Schedules = Schedules(self.runtime)
        self.sync: SyncOperations = SyncOperations(self._portal, SyncSchedules(self.runtime))
        open_apps.add(self)

    # -- declaring

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> TaskFunction[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> TaskFunction[P, R, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        schedule: object = None,
        **options: Unpack[TaskOptions],
    ) -> _Decorator: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        schedule: object = None,
        **options: Any,
    ) -> Any:
        """Declares a function as a task; bare, or with options."""

        def decorate(function: Callable[..., Any]) -> Any:
            declared = self._registry.function(function, name, aliases, schedule, cast(TaskOptions, options))
            return TaskFunction[Any, Any, Any](self._portal, declared)

        return decorate if function is None else decorate(function)

    def schedule(
        self, schedule: object, *, name: str | None = None, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], ScheduledFunction[P, R]]:
        """Declares a function that runs only on schedule: a cron str, timedelta, time, aware datetime, or a rule."""

        if schedule is None:
            raise BadSchedule("@app.schedule(schedule=None): it runs only on schedule, so give it one")

        def decorate(function: Callable[P, R]) -> ScheduledFunction[P, R]:
            return ScheduledFunction(self._registry.function(function, name, (), schedule, options))

        return decorate

    def register(self, consumer: BaseTaskConsumer) -> None:
        """Takes a consumer class's instance into this app. The global registry is never read."""
        self._registry.consumer(consumer)

    def around(self, layer: Around) -> Around:
        """Middleware: ``async def layer(task, call): return await call()``. The first declared is the outermost."""
        if not inspect.iscoroutinefunction(layer):
            raise TypeError(f"@app.around goes on an async function (task, call), not on {layer!r}")
        self.runtime.middleware.append(layer)
        return layer

    # -- adding

    def named(self, name: str) -> NamedTask:
        """A task by name, to be added without having its code."""
        return NamedTask(self._portal, self._registry.by_name(name), {})

    async def enqueue_many(self, calls: Iterable[Call[Any]]) -> list[AsyncTaskHandle[Any]]:
        """Adds calls of any functions: ``await app.enqueue_many([send.s("a"), build.s("x")])``."""
        made = [(call, call.new_task()) for call in calls]
        remote = {call.source for call, _ in made if call.is_remote}
        many = await self._portal.run(lambda client: client.add_many([new for _, new in made], remote))
        return [call.async_handle(new, added) for (call, new), added in zip(made, many, strict=True)]

    def handle(self, uuid: str) -> TaskHandle[Any]:
        """The handle of any task, for sync code."""
        return TaskHandle(self._portal, uuid, decode_untyped_result, added=False)

    def ahandle(self, uuid: str) -> AsyncTaskHandle[Any]:
        """The handle of any task, for async code."""
        return AsyncTaskHandle(self._portal, uuid, decode_untyped_result, added=False)

    # -- running

    @property
    def state(self) -> S:
        """What ``lifespan`` yielded; there while a worker runs in this process."""
        if self.runtime.config.lifespan is not None and not self.runtime.lifespan_entered:
            raise SchedulerStateError("app.state is there only where tasks run: lifespan() has not been entered here")
        return cast(S, self.runtime.state)

    async def __aenter__(self) -> App[S]:
        """Connects on this event loop: can add and look, runs nothing."""
        await self._portal.connect()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._portal.disconnect()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[App[S], None]:
        """Works tasks inside this event loop, until the block ends."""
        if not await self.runtime.host.start("loop"):
            raise SchedulerStateError(f"app {self.name!r} is already {self.runtime.host.status} on this event loop")
        try:
            yield self
        finally:
            await self.runtime.host.stop()

    @contextmanager
    def background(self, process: bool = False) -> Generator[App[S], None, None]:
        """Works tasks on a thread of their own, or in a process of their own, until the block ends."""
        if not self.start(auto=True, threading=not process):
            raise SchedulerStateError(f"app {self.name!r} is already {self.runtime.host.status} in the background")
        try:
            yield self
        finally:
            self.shutdown()

    def run(self) -> None:
        """Works tasks in the foreground until Ctrl+C or SIGTERM."""
        forbid_during_import()
        self.runtime.host.run()

    def start(self, auto: bool = False, threading: bool = True) -> bool:
        """auto=False blocks like ``run()``; auto=True works in the background until ``shutdown()`` or the exit.

        threading says where a background scheduler lives, on a thread or in a process of its own, and where sync
        functions run that name no executor. A process imports the script: it finds what is declared at module level.
        """
        if ImportState.marked and auto:  # this is an import by one of our own processes
            extend_import_deadline(started=True)
            return True
        if self.runtime.host.status == "stopped":
            self._registry.owner.sync_executor = "thread" if threading else "process"
        if not auto:
            self.run()
            return True
        started = (
            self.runtime.host.start_thread()
            if threading
            else self.runtime.host.start_process(self.runtime.start_process)
        )
        if started:
            atexit.register(self.shutdown)
        return started

    def shutdown(self, timeout: float | None = None) -> bool:
        """Ends a background start; running tasks get `timeout` seconds (stop_timeout). True: this call did it."""
        atexit.unregister(self.shutdown)
        try:
            return self.runtime.stop_background(timeout)
        finally:
            self._portal.close()

    def status(self) -> dict[str, Any]:
        """What goes on: state, counts, what runs here, the last error.

        The first call waits for a look at the store, up to half a second; the others never: see `Scheduler.status()`.
        """
        return self.runtime.status()

    @contextmanager
    def override(self, *, store: str | None = None, clock: Clock | None = None) -> Generator[App[S], None, None]:
        """Another store or clock, until the block ends. For tests.

        ::

            with app.override(store="memory://", clock=ManualClock()):
                ...
        """
        config = self.runtime.config
        url = config.url if store is None else store_url(store)
        with self.runtime.override(replace(config, url=url, clock=clock or config.clock)):
            yield self

    # -- looking

    async def get(self, uuid: str) -> TaskInfo:
        """All that is known of a task; a beginning of its uuid is enough."""
        return await self._portal.run(lambda client: client.operations.get(uuid))

    async def explain(self, uuid: str) -> Explanation:
        """Why a task is not running, and when it may: by the rules of the claim."""
        return await self._portal.run(lambda client: client.operations.explain(uuid))

    async def find(self, **where: Unpack[TaskFilter]) -> TaskPage:
        """Tasks, newest first: ``await app.find(state="failed", source="send", limit=10)``."""
        return await self._portal.run(lambda client: client.operations.find(**where))

    async def retry(self, *uuids: str) -> list[str]:
        """Runs failed or cancelled tasks again."""
        return list(await self._portal.run(lambda client: client.operations.retry(*uuids)))

    async def cancel(self, *uuids: str, reason: str = "cancelled") -> int:
        """Cancels tasks; answers how many were alive."""
        return await self._portal.run(lambda client: client.operations.cancel(*uuids, reason=reason))

    async def pause(self, source: str, key: str | None = None, reason: str = "") -> None:
        """Starts nothing more of a source, or of one key of it."""
        await self._portal.run(lambda client: client.operations.pause(source, key, reason))

    async def resume(self, source: str, key: str | None = None) -> None:
        await self._portal.run(lambda client: client.operations.resume(source, key))

    async def purge(self, limit: int = 10_000) -> int:
        """Drops what is past its retention; workers do this by themselves."""
        return await self._portal.run(lambda client: client.operations.purge(limit))


class SyncOperations:
    """What ``app.get``, ``app.find`` … do, for sync code: ``app.sync.get(uuid)``."""

    def __init__(self, portal: Portal, schedules: SyncSchedules) -> None:
        self._portal = portal
        self.schedules = schedules

    def get(self, uuid: str) -> TaskInfo:
        return self._portal.run_sync(lambda client: client.operations.get(uuid))

    def explain(self, uuid: str) -> Explanation:
        return self._portal.run_sync(lambda client: client.operations.explain(uuid))

    def find(self, **where: Unpack[TaskFilter]) -> TaskPage:
        return self._portal.run_sync(lambda client: client.operations.find(**where))

    def retry(self, *uuids: str) -> list[str]:
        return list(self._portal.run_sync(lambda client: client.operations.retry(*uuids)))

    def cancel(self, *uuids: str, reason: str = "cancelled") -> int:
        return self._portal.run_sync(lambda client: client.operations.cancel(*uuids, reason=reason))

    def pause(self, source: str, key: str | None = None, reason: str = "") -> None:
        self._portal.run_sync(lambda client: client.operations.pause(source, key, reason))

    def resume(self, source: str, key: str | None = None) -> None:
        self._portal.run_sync(lambda client: client.operations.resume(source, key))

    def purge(self, limit: int = 10_000) -> int:
        return self._portal.run_sync(lambda client: client.operations.purge(limit))
