"""The runtime of an app or a scheduler: the only place where store, clients, worker and executors are composed."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import threading
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onthedot.batches.coordinator import BatchWorker
from onthedot.client.client import ClientConfig, StoreClient
from onthedot.client.pending_gate import PendingLimits
from onthedot.client.portal import Portal
from onthedot.client.status_counts import StatusCounts, StatusSnapshot
from onthedot.clock.protocol import Clock
from onthedot.definitions.registry import DefinitionRegistry
from onthedot.definitions.sources import Source, Sources
from onthedot.engine.lifecycle import Status
from onthedot.engine.runner import Around
from onthedot.engine.schedule_firer import ScheduleFirer
from onthedot.engine.worker import Worker
from onthedot.errors import SchedulerStateError, StoreRefused
from onthedot.events.callbacks import EventSignals
from onthedot.events.components import NO_COMPONENTS, Components
from onthedot.events.dead_letter_queue import DeadLetterQueue
from onthedot.events.event import Event
from onthedot.events.event_encoder import EventEncoder
from onthedot.executors.contract import Executor
from onthedot.executors.processes.messages import BootMessage
from onthedot.forks import register_fork_hooks
from onthedot.model.batch_names import batch_task
from onthedot.model.executor_names import ASYNC, THREAD
from onthedot.observability.events import Observer, Observers
from onthedot.observability.logs import LogObserver
from onthedot.observability.trace_setup import find_tracing
from onthedot.operations.limits import CodeDefinitions
from onthedot.operations.operations import NO_CODE
from onthedot.runtime.agents import RuntimeAgents
from onthedot.runtime.background import BackgroundWorker
from onthedot.runtime.components import new_components, run_callback_service
from onthedot.runtime.config import RuntimeConfig
from onthedot.runtime.dead_letters import open_dead_letters
from onthedot.runtime.executors import open_executors
from onthedot.runtime.host import WorkerHost
from onthedot.runtime.lifespan import open_lifespan
from onthedot.runtime.settings import store_url, version
from onthedot.runtime.status import status_fields
from onthedot.runtime.user_code import ImportState, current_location, extend_import_deadline, forbid_during_import
from onthedot.runtime.workers import new_worker
from onthedot.schedules.definition import ScheduleDefinition
from onthedot.stores import connect
from onthedot.stores.capabilities import Outbox, find_capability
from onthedot.stores.contract import NewEvent, Store
from onthedot.stores.schemes import absolute

if TYPE_CHECKING:
    from onthedot.observability.spans import Tracing


class Runtime:
    """Store, clients and worker of an app or a scheduler, and their lifetimes.

    Other packages of this project use it through ``app.runtime``. Its attributes are outside the stability promise.
    """

    def __init__(self, config: RuntimeConfig, registry: DefinitionRegistry) -> None:
        self.config: RuntimeConfig = config
        self.registry: DefinitionRegistry = registry
        registry.before_register = self._before_register
        default = registry.default_options.max_pending
        self.pending_limits: PendingLimits = PendingLimits(registry.sources, config.max_pending, default)
        self.status_counts: StatusCounts = self._new_counts(config.count_from_start)
        self.portal: Portal = Portal(self._new_client, lambda: self.store, self.find_tracing)
        self._outbox_portal = Portal(
            lambda: self._client_of(self.outbox_store), lambda: self.outbox_store, self.find_tracing
        )
        self.host: WorkerHost = WorkerHost(
            self._start, self._stop_claiming, self._stop, self.cancel_running, config.logs, config.stop_timeout
        )
        self.worker: Worker | None = None
        self.components: Components = NO_COMPONENTS  # that run beside the worker
        self.batch_worker: BatchWorker | None = None  # for the coordinators that the worker runs
        self.executors: Mapping[str, Executor] = {}  # of the worker, by name
        self.event_signals: EventSignals = EventSignals()
        self.agents: RuntimeAgents = RuntimeAgents(self)
        self.background: BackgroundWorker = BackgroundWorker(self)
        self.middleware: list[Around] = []  # the first is the outermost
        self.state: object = None  # what lifespan() yielded
        self.lifespan_entered: bool = False
        self._store: Store | None = None
        self._outbox_store: Store | None = None  # if it is another one
        self._tracing: Tracing | None = None
        self._connecting = threading.Lock()
        self._exit_stack = AsyncExitStack()
        self._made_by_import: bool = ImportState.marked
        self._lost_memory_store: bool = False  # a fork of the process whose worker has it
        _alive.add(self)
        register_fork_hooks(self)
        if self._made_by_import:
            _kept.append(self)

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def url(self) -> str:
        """Of the store, as far as it is known: the environment may still change it until the store is used."""
        return self.config.url or store_url(None)

    @property
    def clock(self) -> Clock:
        return self.config.clock

    @property
    def logs(self) -> LogObserver:
        return self.config.logs

    def new_observer(self, *more: Observer) -> Observers:
        """For the events of a worker or a client."""
        meters = () if self.config.meter is None else (self.config.meter,)
        return Observers([self.logs, *meters, *self.config.observers, *more], self.logs.scheduler)

    def find_tracing(self) -> Tracing | None:
        """Makes spans, if the program traces by now; else None. Once found it is kept: an error ends all its spans."""
        if self._tracing is None:
            self._tracing = find_tracing(version(), self.logs.scheduler)
        return self._tracing

    @property
    def sources(self) -> Sources:
        return self.registry.sources

    @property
    def schedules(self) -> dict[str, ScheduleDefinition]:
        return self.registry.schedules

    @property
    def store(self) -> Store:
        if self._store is None:
            forbid_during_import()
            with self._connecting:  # two threads may be the first: both must get the same store
                self._store = self._store or self._connect()
        return self._store

    @property
    def outbox_portal(self) -> Portal:
        """To the store that keeps events and resume handles: that of the tasks, unless `Events.outbox` names one."""
        return self.portal if self.config.events.outbox is None else self._outbox_portal

    @property
    def outbox_store(self) -> Store:
        """The store that keeps events and resume handles."""
        url = self.config.events.outbox
        if url is None:
            return self.store
        if self._outbox_store is None:
            forbid_during_import()
            with self._connecting:
                self._outbox_store = self._outbox_store or connect(absolute(url), self.clock, self.name)
        return self._outbox_store

    @property
    def has_store(self) -> bool:
        """Whether the store has been used since the last `disconnect`."""
        return self._store is not None

    def find_outbox(self) -> Outbox | None:
        """The outbox of events; None: the store has none."""
        return find_capability(self.outbox_store, Outbox)

    def dead_letters(self) -> AbstractAsyncContextManager[DeadLetterQueue]:
        """Open the dead letters on the bus of this app, whose store is open on this loop."""
        return open_dead_letters(self.store, self.name, self.config.events)

    def _connect(self) -> Store:
        url = self.url
        unreachable = self._made_by_import or (self._lost_memory_store and self.host.status == "stopped")
        if url.startswith("memory:") and unreachable:
            raise StoreRefused(
                f"app {self.name!r} has a memory:// store, which is in its worker and out of this process's reach: "
                "add with current_task().spawn(…), or use a store such as sqlite://"
            )
        url = absolute(url)  # for processes of ours that have another folder, or after a chdir()
        self.config = replace(self.config, url=url)
        return connect(url, self.clock, self.name)

    def _new_client(self) -> StoreClient:
        return self._client_of(self.store)

    def _client_of(self, store: Store) -> StoreClient:
        code = CodeDefinitions(
            self.registry.limits, self._retention, self.config.max_kept, self.schedules, self.result_decoder
        )
        observer: Observer = self.logs
        if self.config.observers:  # else an add is two calls shorter
            observer = self.new_observer()
        return self.config.client_factory(
            store,
            ClientConfig(
                self.registry.owner.client,
                observer,
                self.clock,
                self.status_counts,
                code,
                self.pending_limits,
                self.find_tracing(),
            ),
        )

    def _new_counts(self, watched: bool) -> StatusCounts:
        return StatusCounts(self.config.clock, self.new_observer(), watched)

    def _retention(self, source: str) -> int:
        known = self.sources.get(source)
        if known is None:
            return NO_CODE.keep(source)
        return known.options.keep

    def result_decoder(self, source: str) -> Callable[[bytes], object]:
        """Reads results by the annotation of the source's function; as plain values, if its code is elsewhere."""
        known = self.sources.get(source)
        if known is None:
            return NO_CODE.result_decoder(source)
        return known.decode_result

    def encode_events(self, events: Sequence[Event[Any]], verb: str) -> list[NewEvent]:
        """Encodes events for the outbox of the store, which settles the task that publishes them."""
        return self.event_encoder().encode_with_task(events, verb)

    def event_encoder(self) -> EventEncoder:
        return EventEncoder(self.config.events, self.name, self.find_tracing())

    def _before_register(self, source: Source) -> None:
        self.host.ensure_known(source.name, source.module)
        extend_import_deadline()
        self.logs.scheduler.info("Task registered: %s", source.name)

    # -- another configuration

    def use(self, config: RuntimeConfig) -> None:
        """Replaces the configuration. Only while no worker runs; another URL or clock means another store."""
        self._require_stopped("use()")
        old = self.config
        self.config = config
        if config.new_uuid is not old.new_uuid:
            self.registry.owner.new_uuid = config.new_uuid
            self.registry.owner.renew_client()
        if config.url != old.url or config.clock is not old.clock:
            self.disconnect()

    def use_store(self, store: Store) -> None:
        """Uses a connected store instead of connecting to the URL: tests share one between apps."""
        self.disconnect()
        self._store = store

    @contextmanager
    def override(self, config: RuntimeConfig) -> Generator[None, None, None]:
        """Another configuration and a store of its own, until the block ends."""
        self._require_stopped("override()")
        before = self.config
        store = self._store
        counts = self.status_counts
        self.config = config
        self.disconnect()
        try:
            yield
        finally:
            self.disconnect()
            self.config = before
            self._store = store
            self.status_counts = counts

    def _require_stopped(self, call: str) -> None:
        if self.host.status != "stopped":
            raise SchedulerStateError(f"{call} while {self.host.status}: stop it first")

    def disconnect(self) -> None:
        """The stores are connected to again when they are used."""
        self.portal.close()
        self._outbox_portal.close()
        self._store = None
        self._outbox_store = None
        self.status_counts = self._new_counts(self.status_counts.watched)

    def import_included(self) -> None:
        """Imports the modules of ``include``, for the tasks that they declare."""
        for module in self.config.include:
            importlib.import_module(module)

    # -- the worker

    async def _start(self) -> None:
        self.import_included()
        if self.config.only_sources is not None:
            for name in self.sources.known - self.config.only_sources:
                if batch_task(name) in self.config.only_sources:
                    continue  # it coordinates batches of a task that runs here
                self.registry.remove(name)
        async with AsyncExitStack() as stack:
            await self.portal.connect()
            stack.push_async_callback(self.portal.disconnect)
            if self.outbox_portal is not self.portal:
                await self.outbox_portal.connect()
                stack.push_async_callback(self.outbox_portal.disconnect)
            self.executors = open_executors(self.config, self.boot_message, stack)
            if self.config.lifespan is not None:
                self.state = await stack.enter_async_context(open_lifespan(self.config.lifespan))
                self.lifespan_entered = True
                stack.callback(self._leave_lifespan)
            self.worker = new_worker(self, self._declare, self._schedule_failed)
            self.components = new_components(self)
            await self.worker.start()
            await self.components.start()
            self._exit_stack = stack.pop_all()
        self.portal.worker_loop = asyncio.get_running_loop()

    async def run_callback_service(self) -> None:
        """Until it is cancelled, without a worker."""
        await run_callback_service(self)

    def _leave_lifespan(self) -> None:
        self.state = None
        self.lifespan_entered = False

    async def _declare(self, firer: ScheduleFirer) -> None:
        await firer.declare()
        await self._refresh_counts()

    def boot_message(self) -> BootMessage:
        """The first message to a pool child."""
        modules = {source.module for source in self.sources if source.executor not in (ASYNC, THREAD)}
        return BootMessage(self.name, self.url, current_location(), sorted(modules.union(self.config.include)))

    async def _stop(self, timeout: float | None) -> None:
        assert self.worker is not None
        self.agents.unsubscribe()
        try:
            await self.components.stop_feeding()
            try:
                await self.worker.stop(timeout)
            finally:
                await self.components.stop()
            await self._refresh_counts()
            if not self.store.traits.shared and not self.config.keep_pending_on_stop:
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
        """Cancels running tasks, as a second Ctrl+C does."""
        if self.worker is not None:
            self.worker.cancel_running()

    def status(self) -> dict[str, Any]:
        """The status of this process and the number of tasks. Waits for the store once at most."""
        status = self.host.status
        return status_fields(status, self.worker, self._status_snapshot(status), self.config.poll_interval)

    def _status_snapshot(self, status: Status) -> StatusSnapshot:
        """Counts a store that answers at once. For any other it returns the last counts and starts the next count."""
        if self._store is None:  # never used: nothing to count, and no reason to connect
            return StatusSnapshot()
        if self._store.traits.synchronous:
            return self.portal.run_sync(lambda client: self.status_counts.refresh(client.store))
        if not self.status_counts.watched:
            self.status_counts.watched = True
            if self.worker is not None:
                self.worker.watch_turns(self.status_counts.mark_stale)
            self.portal.run_sync(StoreClient.watch)
        elif not self.status_counts.mark_stale() and status == "running":
            self.portal.ensure_open()  # the worker is in another process, so no client is open here
        return self.status_counts.now()

    async def _refresh_counts(self) -> None:
        """Counts at a start and a stop, so that the next ``status()`` includes what they changed."""
        if self.status_counts.watched and not self.store.traits.synchronous:
            await self.status_counts.count_now(self.store)

    def close(self) -> None:
        """Closes the clients on the thread of the portal; they are opened again when needed."""
        self.portal.close()
        self._outbox_portal.close()
        self.background.remove_folder()

    def after_fork(self) -> None:
        """Threads and connections stay with the parent.

        A copied memory store of a running worker is dropped: no worker would run what is added to the copy.
        """
        if self.host.status != "stopped" and self._store is not None and not self._store.traits.shared:
            self._store = None
            self._lost_memory_store = True
        self.registry.owner.renew_client()
        self.worker = None
        self.components = NO_COMPONENTS
        self.background.after_fork()
        self._connecting = threading.Lock()
        self.host.after_fork()
        self.portal.after_fork()
        self._outbox_portal.after_fork()
        self.status_counts.after_fork()


_alive: weakref.WeakSet[Runtime] = weakref.WeakSet()
_kept: list[Runtime] = []  # made by an import, which looks for them afterwards


def runtimes_named(name: str) -> list[Runtime]:
    """The apps and schedulers of this name in this process."""
    return [runtime for runtime in list(_alive) if runtime.name == name]


def _close_all() -> None:
    """At exit: threads of portals end before the interpreter does."""
    for runtime in list(_alive):
        runtime.close()


atexit.register(_close_all)
