"""The core of an app or a scheduler: the only place where the parts are put together."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import os
import random as randomness
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from onthedot.client.client import ClientConfig, StoreClient
from onthedot.client.pending_gate import PendingLimits
from onthedot.client.portal import Portal
from onthedot.client.status_counts import StatusCounts, StatusSnapshot
from onthedot.clock.durations import Duration, to_seconds
from onthedot.clock.protocol import Clock
from onthedot.clock.system import SystemClock
from onthedot.definitions.sources import Sources
from onthedot.engine.config import WorkerConfig
from onthedot.engine.heartbeat import HeartbeatDelegate, TaskHeartbeatRunner
from onthedot.engine.lifecycle import Status
from onthedot.engine.runner import Around
from onthedot.engine.schedule_firer import ScheduleFirer
from onthedot.engine.worker import Worker
from onthedot.errors import SchedulerStateError, StoreRefused
from onthedot.executors.contract import Executor
from onthedot.executors.event_loop import EventLoopExecutor
from onthedot.executors.processes import Processes
from onthedot.executors.processes.messages import BootMessage
from onthedot.executors.threads import ThreadExecutor
from onthedot.forks import register_fork_hooks
from onthedot.model.uuid7 import new_uuid
from onthedot.observability.events import Observers
from onthedot.observability.logs import LogObserver
from onthedot.operations.limits import CodeDefinitions
from onthedot.operations.operations import NO_CODE
from onthedot.runtime.background_process import CHILD_ENTRY_POINT, BackgroundProcess, require_importable
from onthedot.runtime.heartbeat_thread import HeartbeatThread
from onthedot.runtime.host import WorkerHost
from onthedot.runtime.settings import store_url, version
from onthedot.runtime.user_code import ImportState, current_location, forbid_during_import
from onthedot.schedules.definition import ScheduleDefinition
from onthedot.stores import connect
from onthedot.stores.contract import Limit, Store
from onthedot.stores.schemes import absolute


@dataclass(eq=False)
class Runtime:
    """Store, links, worker and their life, for whoever declares sources."""

    name: str
    url: str | None
    logs: LogObserver
    slots: dict[str, int]  # slots by executor
    stop_timeout: float | None
    poll_interval: float
    one_pool: bool = False
    claim_batch: int | None = None  # the most that a claim takes; None: as many as there are free slots
    keep_pending_on_stop: bool = False  # what waits in a private store is kept for the next start
    lifespan: Callable[[], AbstractAsyncContextManager[object]] | None = None
    include: tuple[str, ...] = ()
    own_executors: Mapping[str, Executor] = field(default_factory=dict[str, Executor])
    around: list[Around] = field(default_factory=list[Around])
    clock: Clock = field(default_factory=SystemClock)
    sources: Sources = field(default_factory=Sources)
    schedules: dict[str, ScheduleDefinition] = field(default_factory=dict[str, ScheduleDefinition])
    watched: bool = False  # its status() never waits, the first time neither
    sync_executor: str = "thread"
    module: str = "__main__"  # where it is made
    most_kept: int = 1_000_000  # ended tasks
    max_pending: int | None = None
    heartbeat_delegate: HeartbeatDelegate | None = None  # beats for this process

    def __post_init__(self) -> None:
        self.pending_limits: PendingLimits = PendingLimits(self.sources, self.max_pending)
        self.client: str = new_uuid()
        self.status_counts: StatusCounts = StatusCounts(self.clock, self.logs, self.watched)
        self.portal: Portal = Portal(self._new_client, lambda: self.store)
        self.host: WorkerHost = WorkerHost(
            self._start, self._stop_claiming, self._stop, self.logs, self.stop_timeout, self.cancel_running
        )
        self.worker: Worker | None = None
        self.executors: Mapping[str, Executor] = {}  # of the worker, by name
        self.state: object = None
        self.lifespan_entered: bool = False  # lifespan() has yielded
        self._store: Store | None = None
        self._connecting = threading.Lock()
        self._exit_stack = AsyncExitStack()
        self._made_by_import: bool = ImportState.marked
        self._lost_memory_store: bool = False  # by a fork from the process that works on its memory store
        self.folder: str = ""  # of an ephemeral file that stands for a memory store
        _alive.add(self)
        register_fork_hooks(self)
        if self._made_by_import:
            _kept.append(self)

    @property
    def store(self) -> Store:
        if self._store is None:
            forbid_during_import()
            with self._connecting:  # two threads may be the first: then they must not get a store each
                self._store = self._store or self._connect()
        return self._store

    def _connect(self) -> Store:
        url = self.url or store_url(None)
        if url.startswith("memory:") and (
            self._made_by_import or (self._lost_memory_store and self.host.status == "stopped")
        ):
            raise StoreRefused(
                f"app {self.name!r} has a memory:// store, which is in its worker and out of this process's reach: "
                "add with current_task().spawn(…), or use a store such as sqlite://"
            )
        self.url = absolute(url)  # for processes of ours that have another folder, or after a chdir()
        return connect(self.url, self.clock, self.name)

    def _new_client(self) -> StoreClient:
        return StoreClient(self.store, self.client_config())

    def client_config(self) -> ClientConfig:
        """What all links have in common."""
        return ClientConfig(self.client, self.logs, self.clock, self.status_counts, self.code, self.pending_limits)

    @property
    def code(self) -> CodeDefinitions:
        """What this process's code says to those who operate."""
        return CodeDefinitions(self._limits, self._retention, self.most_kept, self.schedules)

    def _limits(self) -> list[Limit]:
        return [limit for name, source in self.sources.items() for limit in source.limits(name)]

    def _retention(self, source: str) -> int:
        known = self.sources.get(source)
        return NO_CODE.keep(source) if known is None else known.options.keep

    def _leave_lifespan(self) -> None:
        self.state, self.lifespan_entered = None, False

    async def _start(self) -> None:
        for module in self.include:
            importlib.import_module(module)
        async with AsyncExitStack() as stack:
            await self.portal.connect()
            stack.push_async_callback(self.portal.disconnect)
            self.executors = executors = self._executors(stack)
            if self.lifespan is not None:
                self.state = await stack.enter_async_context(self.lifespan())
                self.lifespan_entered = True
                stack.callback(self._leave_lifespan)
            self.worker = self._worker(executors)
            await self.worker.start()
            self._exit_stack = stack.pop_all()
        self.portal.worker_loop = asyncio.get_running_loop()

    def _worker(self, executors: Mapping[str, Executor]) -> Worker:
        config = WorkerConfig(
            slots=self.slots | {name: self.slots_of(each) for name, each in self.own_executors.items()},
            lease_ms=self.store.traits.lease_ms,
            app=self.name,
            version=version(),
            one_pool=self.one_pool,
            claim_batch=self.claim_batch,
            poll_interval=self.poll_interval * 1000,
            max_retained=self.most_kept,
        )
        observer = Observers([self.logs], self.logs.scheduler)
        firer = ScheduleFirer(self.store, self.sources, self.schedules, self.clock, observer, self._schedule_failed)
        return Worker(
            config,
            store=self.store,
            sources=self.sources,
            executors=executors,
            firer=firer,
            schedules=self.schedules,
            declare=lambda: self._declare(firer),
            clock=self.clock,
            random=randomness.Random(),
            new_uuid=new_uuid,
            observer=observer,
            task_log=self.logs.task.logger,
            heartbeat_runner=HeartbeatThread() if self.clock.is_system else TaskHeartbeatRunner(),
            heartbeat_delegate=self.heartbeat_delegate,
            middleware=tuple(self.around),
            on_turn=self.status_counts.mark_stale,
            on_fatal=self.host.failed,
        )

    async def _declare(self, firing: ScheduleFirer) -> None:
        await firing.declare()
        await self._refresh_counts()

    def _executors(self, stack: AsyncExitStack) -> dict[str, Executor]:
        executors: dict[str, Executor] = {
            "async": EventLoopExecutor(),
            "thread": ThreadExecutor(f"onthedot-{self.name}"),
            "process": Processes(),
        }
        for executor in executors.values():
            stack.callback(executor.close)
        for executor in (executors | dict(self.own_executors)).values():
            if isinstance(executor, Processes):
                executor.open(self.boot_message, CHILD_ENTRY_POINT)
                stack.callback(executor.close)
        return executors | dict(self.own_executors)

    def slots_of(self, executor: Executor) -> int:
        return executor.slots or self.slots["process" if isinstance(executor, Processes) else "async"]

    def start_process(self) -> BackgroundProcess:
        """This app, run by a process of its own. With a memory store, both work on a file that ends with this one."""
        modules = {each.module for each in self.sources} | {self.module, *self.include}
        url = absolute(self.url or store_url(None))
        boot = BootMessage(self.name, url, current_location(), sorted(modules), hosts=True)
        require_importable(boot)
        if not boot.url.startswith("memory:"):
            return BackgroundProcess(boot, self.stop_timeout, self.folder)
        folder = tempfile.mkdtemp(prefix="onthedot-")
        boot.url = f"sqlite:///{folder}/tasks.db"
        try:
            background = BackgroundProcess(boot, self.stop_timeout, folder)
        except BaseException:
            shutil.rmtree(folder)
            raise
        self._replace_memory_store(boot.url, folder)
        return background

    def _replace_memory_store(self, url: str, folder: str) -> None:
        waiting = [] if self._store is None else self.portal.run_sync(lambda client: client.operations.pending())
        self.portal.close()
        self.url, self._store, self.folder = url, None, folder
        self.status_counts = StatusCounts(self.clock, self.logs, self.status_counts.watched)
        _kept.append(self)  # until the exit, when the folder goes
        if waiting:
            self.portal.run_sync(lambda link: link.import_tasks(waiting))

    def stop_background(self, timeout: float | None) -> bool:
        if not self.host.stop_process(timeout):
            return self.host.stop_thread(timeout)
        if self.folder:  # it stands for a memory store
            with suppress(RuntimeError):  # at exit no thread can be started any more, and nobody waits
                self.portal.run_sync(lambda client: client.operations.cancel_pending("shutdown"))
        return True

    def boot_message(self) -> BootMessage:
        """What a pool child must know of this app."""
        there = {each.module for each in self.sources if each.executor not in ("async", "thread")}
        return BootMessage(
            self.name, self.url or store_url(None), current_location(), sorted(there.union(self.include))
        )

    async def _stop(self, timeout: float | None) -> None:
        assert self.worker is not None
        try:
            await self.worker.stop(timeout)
            await self._refresh_counts()
            if not self.store.traits.shared and not self.keep_pending_on_stop:
                await self.portal.run(lambda client: client.operations.cancel_pending("shutdown"))
        finally:
            self.portal.worker_loop = None
            await self._exit_stack.aclose()

    def _stop_claiming(self) -> None:
        if self.worker is not None:
            self.worker.stop_claiming()

    def _schedule_failed(self, error: Exception) -> None:
        if self.worker is not None:
            self.worker.last_error = error

    def cancel_running(self) -> None:
        if self.worker is not None:
            self.worker.cancel_running()

    def status(self) -> dict[str, Any]:
        """What goes on, at once."""
        status, worker = self.host.status, self.worker
        runs = worker.runs if worker and status in ("running", "stopping") else []
        seen = self._status_snapshot(status)
        error = None if worker is None else worker.last_error
        interval = self.poll_interval
        return {
            "status": status,
            "poll_interval": int(interval) if interval.is_integer() else interval,
            "queue_count": seen.ready,
            "scheduled_count": seen.schedules,
            "enabled_scheduled_count": seen.enabled,
            "running_count": len(runs),
            "is_executing": bool(runs),
            "current_task_id": min(runs, key=lambda run: run.started).lease.uuid if runs else None,
            "updated_at": datetime.now(UTC).isoformat(),
            "delayed_count": seen.delayed,
            "last_error": None if error is None else f"{type(error).__name__}: {error}",
        }

    def _status_snapshot(self, status: Status) -> StatusSnapshot:
        """A store that answers at once is asked; of any other, the last look is told, and the next one is begun."""
        if self._store is None:  # never used: nothing to count, and no reason to connect
            return StatusSnapshot()
        if self._store.traits.synchronous:
            return self.portal.run_sync(lambda client: self.status_counts.refresh(client.store))
        if not self.status_counts.watched:
            self.status_counts.watched = True
            self.portal.run_sync(StoreClient.watch)
        elif (
            not self.status_counts.mark_stale() and status == "running"
        ):  # in a process of its own; a stopped one opens nothing
            self.portal.ensure_open()
        return self.status_counts.now()

    async def _refresh_counts(self) -> None:
        """What was declared at the start, or given back at the end, is in the very next status()."""
        if self.status_counts.watched and not self.store.traits.synchronous:
            await self.status_counts.look_now(self.store)

    def after_fork(self) -> None:
        """Threads and connections stay with the parent.

        A copied memory store of a running worker is dropped: no worker would run what is added to the copy.
        """
        if self.host.status != "stopped" and self._store is not None and not self._store.traits.shared:
            self._store = None
            self._lost_memory_store = True
        self.client = new_uuid()
        self.worker = None
        self.folder = ""  # the parent's to remove
        self._connecting = threading.Lock()
        self.host.after_fork()
        self.portal.after_fork()
        self.status_counts.after_fork()

    @contextmanager
    def override(self, store: str | None, clock: Clock | None) -> Generator[None, None, None]:
        """Another store or clock, until the block ends."""
        if self.host.status != "stopped":
            raise SchedulerStateError(f"override() while {self.host.status}: stop it first")
        before = (self.url, self.clock, self._store, self.status_counts)
        self.portal.close()
        self.url = self.url if store is None else store_url(store)
        self.clock = clock or self.clock
        self._store, self.status_counts = None, StatusCounts(self.clock, self.logs, self.status_counts.watched)
        try:
            yield
        finally:
            self.portal.close()
            self.url, self.clock, self._store, self.status_counts = before


def poll_interval_of(value: Duration) -> float:
    interval = to_seconds(value, "poll_interval")
    if interval <= 0:
        raise ValueError("poll_interval must be more than 0 seconds: it is the fallback under wake-ups")
    return interval


def slots(concurrency: int, threads: int | None, processes: int | None, max_workers: int | None) -> dict[str, int]:
    """How many tasks of each executor run in this process at once."""
    cores = os.cpu_count() or 1
    said = {"concurrency": concurrency, "threads": threads, "processes": processes, "max_workers": max_workers}
    for name, total in said.items():
        if total is not None and (not isinstance(total, int) or isinstance(total, bool) or total < 1):
            raise ValueError(f"{name} must be a whole number from 1, not {total!r}")
    return {
        "async": concurrency,
        "thread": threads or max_workers or min(32, cores + 4),
        "process": processes or max_workers or cores,
    }


_alive: weakref.WeakSet[Runtime] = weakref.WeakSet()
_kept: list[Runtime] = []  # made by an import, which looks for them afterwards; or with something to tidy up


def runtimes_named(name: str) -> list[Runtime]:
    """The apps and schedulers of this name in this process."""
    return [runtime for runtime in list(_alive) if runtime.name == name]


def _close() -> None:
    """At exit: a thread that only waited must not be cut off in the middle of a word."""
    for runtime in list(_alive):
        runtime.portal.close()
        if runtime.folder:
            shutil.rmtree(runtime.folder, ignore_errors=True)


atexit.register(_close)
