"""The task that runs here, for its own code: ``current_task()``."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from onthedot.clock.epoch import from_ms, from_optional_ms
from onthedot.codec.body import NO_HEADERS, Headers
from onthedot.codec.task_failure import TaskFailure
from onthedot.errors import TaskCancelled
from onthedot.model.durable_context import DurableContext, DurableRunProtocol, SyncDurableContext
from onthedot.model.error_policy import LeaseLost
from onthedot.model.event_origin import EventOrigin
from onthedot.model.flow_names import MEMBER_KEEP
from onthedot.model.streams import StreamRunProtocol
from onthedot.model.traces import RunSpan
from onthedot.stores.contract import Completed, Effects

if TYPE_CHECKING:
    from onthedot.api.flow_handles import FlowHandle
    from onthedot.definitions.sources import Source
    from onthedot.events.event import Event
    from onthedot.flows.calls import Call
    from onthedot.stores.contract import Ended, Lease, NewEvent, NewTask, Outcome, Record, Requeued, Verdict

R = TypeVar("R")

_current: ContextVar[RunState] = ContextVar("onthedot_task")
set_current: Callable[[RunState], Token[RunState]] = _current.set
reset_current: Callable[[Token[RunState]], None] = _current.reset


class ReportSink(Protocol):
    """Takes the reports of running tasks."""

    @property
    def log(self) -> logging.Logger: ...
    def progress(self, lease: Lease, done: float, total: float) -> None: ...
    def has_event_loop(self) -> bool:
        """Whether an event loop runs in the calling thread."""
        ...

    async def results(self, record: Record, page: int) -> Sequence[object]:
        """A page of the results of tasks that it follows; an empty one is after the last."""
        ...

    def results_in_thread(self, record: Record, page: int) -> Sequence[object]:
        """The same, on the thread of a sync task."""
        ...

    def encode_events(self, events: Sequence[Event[Any]], verb: str) -> Sequence[NewEvent]:
        """Events as the outbox of the store keeps them. StoreRefused: `verb` does not work on this store."""
        ...

    def settle_in(self, connection: object, outcome: Outcome) -> Verdict:
        """Settles in the transaction of a sync connection, on the calling thread."""
        ...

    async def settle_awaited(self, connection: object, outcome: Outcome) -> Verdict:
        """Settles in the transaction of a connection, on the running event loop."""
        ...

    def durable_run(self, run: RunState, verb: str) -> DurableRunProtocol:
        """The steps and waits of a run. TypeError: `verb` cannot be used where the function runs."""
        ...

    def stream_run(self, run: RunState) -> StreamRunProtocol:
        """The stream of a run whose function is an async generator."""
        ...


class RunState(Struct, eq=False):
    """One run, in the process that calls the function. Its `TaskContext` is created on first use."""

    source: Source
    record: Record
    lease: Lease
    reports: ReportSink
    started: float = 0  # ms, by the clock of the worker; 0: the process that runs it does not know
    thread: str = ""  # name of the thread that calls the function
    cancel_reason: str = ""  # set: the run shall end
    deadline_ms: float | None = None
    on_begin: Callable[[], object] | None = None  # starts the timeout, if the executor queues the call first
    spawned: list[NewTask] | None = None
    published: list[NewEvent] | None = None
    classified: tuple[BaseException, Requeued | Ended] | None = None
    """An error, and the outcome that was decided where its class is known: in another process, or by an agent."""
    durable: DurableRunProtocol | None = None  # None: it has used no step and no wait
    stream: StreamRunProtocol | None = None  # None: its function is no async generator
    arguments: Mapping[str, Any] = MappingProxyType({})  # until the body is decoded
    headers: Headers = NO_HEADERS
    span: RunSpan | None = None  # None: this program does not trace
    event_origin: EventOrigin | None = None  # None: it has made no event, and handles none
    _context: TaskContext | None = None

    @property
    def context(self) -> TaskContext:
        if self._context is None:
            self._context = TaskContext(self)
        return self._context

    def deciding_error(self, error: BaseException) -> BaseException | None:
        """The error that decides on the outcome if the function ends with this one; None: the run does not count."""
        return error

    def completed(self, result: bytes) -> Completed:
        """The outcome of a run that has succeeded, with the tasks that it has spawned and the events it published."""
        options = self.source.options
        effects = None
        if self.spawned is not None or self.published is not None:
            tasks = tuple(self.spawned or ())
            if self.span is not None:
                tasks = self.span.context.pass_on(tasks)
            effects = Effects(tasks, tuple(self.published or ()))
        if self.record.links is not None:  # others may need its result
            return Completed(self.lease, result, max(options.keep, MEMBER_KEEP), effects)
        return Completed(self.lease, result, options.keep, effects, options.keep_result)


class TaskContext(DurableContext):
    """The running task, for its own code; `current_task()` returns it.

    >>> from onthedot import App
    >>> app = App(store="memory://")
    >>> @app.task
    ... def build() -> str:
    ...     ctx = current_task()
    ...     ctx.progress(1, total=2)
    ...     return f"{ctx.source}, attempt {ctx.attempt}"
    >>> with app.background():
    ...     build.delay().result(timeout=5)
    'build, attempt 1'
    """

    def __init__(self, run: RunState) -> None:
        self._run = run

    @property
    def uuid(self) -> str:
        """Id of the task."""
        return self._run.record.uuid

    @property
    def source(self) -> str:
        """Name of the task's function or consumer."""
        return self._run.record.source

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments by name, as they were passed."""
        return self._run.arguments

    @property
    def attempt(self) -> int:
        """Number of this run, from 1. The death of a worker counts, a snooze does not.

        A retry by an operator counts, too, also of a task that was cancelled before it ran.
        """
        return self._run.record.attempt

    @property
    def is_last_attempt(self) -> bool:
        """Whether no retry is left after this run. Without `max_retries` it is true; a raised `Retry` has 3 even so."""
        return self._run.record.history.retries >= self._run.source.options.max_retries

    @property
    def last_error(self) -> TaskFailure | None:
        """The error of the last attempt; None in the first one."""
        from onthedot.model.failures import decode_failure

        return decode_failure(self._run.record.history.error)

    @property
    def fence(self) -> int:
        """A number that grows with every claim, for systems that can refuse a stale writer."""
        return self._run.lease.fence

    @property
    def idempotency_key(self) -> str:
        """The uuid: the same for every attempt of this task."""
        return self._run.record.uuid

    @property
    def scheduled_for(self) -> datetime:
        """The nominal time: that of the schedule's window, else when the task was due."""
        if self._run.headers.scheduled_for is not None:
            return from_ms(self._run.headers.scheduled_for)
        if self._run.headers.at is not None:
            return datetime.fromisoformat(self._run.headers.at)
        return from_ms(self._run.record.due)

    @property
    def streamed(self) -> int:
        """How many items of a stream are saved; 0 in any other task.

        Reading it before the first ``yield`` continues the stream: the next item follows the saved ones. Otherwise a
        new run, after a crash, a retry, a sleep or a wait, begins the stream again.
        """
        if self._run.stream is None:
            return 0
        return self._run.stream.streamed

    async def streamed_items(self) -> list[Any]:
        """Returns the saved items of a stream; none in any other task. It continues the stream, like `streamed`."""
        if self._run.stream is None:
            return []
        return [self._run.source.decode_result(item) for item in await self._run.stream.items()]

    @property
    def deadline(self) -> datetime | None:
        """When the run times out; None without a timeout."""
        return from_optional_ms(self._run.deadline_ms)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the task."""
        return self._run.record.policy.tags

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The ``options(metadata=…)`` of the call."""
        return self._run.headers.metadata or {}

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """The logger ``onthedot.task``; each record has uuid, source, attempt and worker."""
        fields = {"uuid": self.uuid, "source": self.source, "attempt": self.attempt, "worker": self._run.lease.session}
        return logging.LoggerAdapter(self._run.reports.log, fields)

    def progress(self, done: float, total: float = 100) -> None:
        """Reports how far the task is, for ``handle.info()`` and the command line. Reports are written in batches.

        Args:
            done: how much is done.
            total: how much there is.
        """
        self._run.reports.progress(self._run.lease, done, total)

    def cancelled(self) -> bool:
        """Whether the task is to end: for sync code, which cannot be interrupted."""
        return bool(self._run.cancel_reason)

    def raise_if_cancelled(self) -> None:
        """Raises `TaskCancelled` if the task is to end."""
        if self._run.cancel_reason:
            raise TaskCancelled(self._run.cancel_reason, self.uuid)

    def spawn(self, call: Call[R]) -> FlowHandle[R]:
        """Adds a task or a flow in the same step that settles this one as succeeded: both happen, or neither.

        Args:
            call: the task to add, as in ``ctx.spawn(send.s("ann"))``, or a flow of up to 1,000 tasks.
        """
        links = self._run.record.links
        tasks, handle = call.origin().spawn(call, None if links is None else links.flow, self._run.source.owner)
        if self._run.spawned is None:
            self._run.spawned = []
        self._run.spawned += tasks
        return handle

    def publish(self, event: Event[Any], *more: Event[Any]) -> None:
        """Publishes events in the step that settles this task as succeeded, or that begins its next wait or sleep.

        A run that fails publishes nothing. Ids of events that are made inside a task derive from it, so a run that is
        repeated publishes nothing twice.

        Args:
            event: the event, as in ``ctx.publish(Event("Shop.Order.Shipped", {"id": 17}, aggregate_id="17"))``.
            more: further events.
        """
        encoded = self._run.reports.encode_events((event, *more), f'ctx.publish() in "{self.source}"')
        self._run.published = [*(self._run.published or ()), *encoded]

    def results(self) -> AsyncIterator[Any]:
        """Yields the results of the tasks that this one follows by ``.after(…)``, in their order, read page by page.

        A failure that is collected is a `TaskFailure`. For async tasks; sync ones use ``ctx.sync.results()``.
        """
        if not self._run.reports.has_event_loop():
            raise TypeError(
                f'ctx.results() is for async tasks and "{self.source}" is sync: write ctx.sync.results(), without async'
            )
        return self._results()

    async def _results(self) -> AsyncIterator[Any]:
        page = 0
        while results := await self._run.reports.results(self._run.record, page):
            for result in results:
                yield result
            page += 1

    @property
    def sync(self) -> SyncTaskContext:
        """The verbs that wait, for sync tasks: ``ctx.sync.complete(…)``."""
        return SyncTaskContext(self._run)

    def complete(self, result: object = None, connection: object = None) -> Coroutine[Any, Any, None]:
        """Settles this task as succeeded in your own transaction: with your commit, or not at all. For async tasks.

        Raises `TaskCancelled` if another worker has this task by now; let it roll your transaction back. The return
        value of the function is then ignored.

        Args:
            result: the result of the task.
            connection: your connection to the database of the store.

        ::

            async with connection.transaction():             # asyncpg, to the database of the store
                await connection.execute("UPDATE …")
                await ctx.complete(42, connection=connection)
        """
        if not self._run.reports.has_event_loop():  # a coroutine that nothing awaits would do nothing
            raise TypeError(
                f"ctx.complete() in {self.source!r}, a sync task: write ctx.sync.complete(…), without await"
            )
        return self._complete(result, connection)

    async def _complete(self, result: object, connection: object) -> None:
        _check_no_stream(self._run)
        outcome = _completed(self._run, result)
        _check_lease(self._run, await self._run.reports.settle_awaited(connection, outcome))


class SyncTaskContext(SyncDurableContext):
    """The verbs of a `TaskContext` that wait for the store, for sync tasks, in threads and processes."""

    def __init__(self, run: RunState) -> None:
        self._run = run

    def results(self) -> Iterator[Any]:
        """Yields the results of the tasks that this one follows by ``.after(…)``, in their order, read page by page."""
        if self._run.reports.has_event_loop():
            source = self._run.record.source
            raise TypeError(f'ctx.sync.results() is for sync tasks and "{source}" is async: write ctx.results()')
        return self._results()

    def _results(self) -> Iterator[Any]:
        page = 0
        while results := self._run.reports.results_in_thread(self._run.record, page):
            yield from results
            page += 1

    def complete(self, result: object = None, connection: object = None) -> None:
        """Settles this task as succeeded in your own transaction: with your commit, or not at all.

        Raises `TaskCancelled` if another worker has this task by now; let it roll your transaction back. The return
        value of the function is then ignored.

        Args:
            result: the result of the task.
            connection: your sync connection to the database of the store.

        ::

            with Session(engine) as session, session.begin():    # SQLAlchemy; also psycopg and sqlite3
                session.execute(text("UPDATE …"))
                ctx.sync.complete(42, connection=session)
        """
        outcome = _completed(self._run, result)
        _check_lease(self._run, self._run.reports.settle_in(connection, outcome))


def _completed(run: RunState, result: object) -> Completed:
    data = b"" if result is None else run.source.encode(result)
    return run.completed(data)


def _check_no_stream(run: RunState) -> None:
    """Its unsaved items would be lost: they cannot be saved while your transaction is open, nor after it."""
    if run.stream is not None:
        raise TypeError(
            f'ctx.complete() in "{run.record.source}", a stream: it ends by returning, and its result is its items. '
            "For work in your transaction write await ctx.step_in(connection, …)"
        )


def _check_lease(run: RunState, verdict: Verdict) -> None:
    if verdict == "lost":
        raise LeaseLost(run.record.uuid)


def current_task() -> TaskContext:
    """The context of the task that runs here; RuntimeError outside of a task."""
    try:
        return _current.get().context
    except LookupError:
        raise RuntimeError("current_task() was called outside of a running task") from None


def running_task() -> TaskContext | None:
    """The context of the task that runs here; None outside of a task."""
    run = current_run()
    if run is None:
        return None
    return run.context


def current_event_origin() -> EventOrigin | None:
    """Where an event comes from that is made here; None outside of a task."""
    run = current_run()
    if run is None:
        return None
    if run.event_origin is None:
        correlation_id = (run.headers.metadata or {}).get("correlation_id")
        if not isinstance(correlation_id, str):
            correlation_id = None
        run.event_origin = EventOrigin(run.record.uuid, run.record.history.revives, correlation_id=correlation_id)
    return run.event_origin


def current_run() -> RunState | None:
    """The run whose function is called here, for executors and definitions."""
    return _current.get(None)
