"""What a task can know and say while it runs: ``current_task()``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from onthedot.clock.epoch import from_ms
from onthedot.codec.body import NO_HEADERS
from onthedot.errors import TaskCancelled
from onthedot.model.task import TaskFailure
from onthedot.stores.contract import Completed, Effects

if TYPE_CHECKING:
    from onthedot.api.functions import Call
    from onthedot.api.handles import TaskHandle
    from onthedot.definitions.sources import Source
    from onthedot.stores.contract import Lease, NewTask, Outcome, Record, Verdict

R = TypeVar("R")

_current: ContextVar[RunState] = ContextVar("onthedot_task")
set_current: Callable[[RunState], Token[RunState]] = _current.set
reset_current: Callable[[Token[RunState]], None] = _current.reset


class ReportSink(Protocol):
    """Takes the reports of running tasks."""

    @property
    def log(self) -> logging.Logger: ...
    def progress(self, lease: Lease, done: float, total: float) -> None: ...
    async def settle_in(self, connection: object, outcome: Outcome) -> Verdict: ...


class RunState:
    """One run, in the process that calls the function. Its `TaskContext` is created on first use.

    Attributes that few runs need are class attributes until they are set, because every run creates a `RunState`.
    """

    thread = ""  # name of the thread that calls the function
    cancel_reason = ""  # set: the run shall end
    deadline_ms: float | None = None
    on_begin: Callable[[], object] | None = None  # starts the timeout, if the executor queues the call first
    spawned: list[NewTask] | None = None
    arguments: Mapping[str, Any] = MappingProxyType({})  # until the body is decoded
    headers = NO_HEADERS
    _context: TaskContext | None = None

    def __init__(self, source: Source, record: Record, lease: Lease, reports: ReportSink) -> None:
        self.source = source
        self.record = record
        self.lease = lease
        self.reports = reports

    @property
    def context(self) -> TaskContext:
        if self._context is None:
            self._context = TaskContext(self)
        return self._context

    def completed(self, result: bytes) -> Completed:
        """The outcome of a run that has succeeded, with the tasks that it has spawned."""
        options = self.source.options
        effects = None if self.spawned is None else Effects(tuple(self.spawned))
        return Completed(self.lease, result, options.keep, effects, options.keep_result)


class TaskContext:
    """The task that is running here.

    ``uuid`` · ``source`` · ``args`` · ``attempt`` · ``is_last_attempt`` · ``last_error`` · ``fence``
    · ``idempotency_key`` · ``scheduled_for`` · ``deadline`` · ``tags`` · ``metadata`` · ``logger``
    """

    def __init__(self, run: RunState) -> None:
        self._run = run

    @property
    def uuid(self) -> str:
        return self._run.record.uuid

    @property
    def source(self) -> str:
        return self._run.record.source

    @property
    def args(self) -> Mapping[str, Any]:
        """By name, as they were passed."""
        return self._run.arguments

    @property
    def attempt(self) -> int:
        """From 1; a worker's death counts as an attempt, a snooze does not."""
        return self._run.record.attempt

    @property
    def is_last_attempt(self) -> bool:
        """No retry is left after this run."""
        return self._run.record.history.retries >= self._run.source.options.max_retries

    @property
    def last_error(self) -> TaskFailure | None:
        from onthedot.model.failures import decode_failure

        return decode_failure(self._run.record.history.error)

    @property
    def fence(self) -> int:
        """Grows with every claim: pass it to systems that can refuse a stale writer."""
        return self._run.lease.fence

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this task."""
        return self._run.record.uuid

    @property
    def scheduled_for(self) -> datetime:
        """The nominal time: of the schedule's window, else when the task was due."""
        if self._run.headers.scheduled_for is not None:
            return from_ms(self._run.headers.scheduled_for)
        if self._run.headers.at is not None:
            return datetime.fromisoformat(self._run.headers.at)
        return from_ms(self._run.record.due)

    @property
    def deadline(self) -> datetime | None:
        """When the timeout strikes."""
        return None if self._run.deadline_ms is None else from_ms(self._run.deadline_ms)

    @property
    def tags(self) -> tuple[str, ...]:
        return self._run.record.policy.tags

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._run.headers.metadata or {}

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """``onthedot.task``, with uuid, source and attempt on every record."""
        fields = {"uuid": self.uuid, "source": self.source, "attempt": self.attempt, "worker": self._run.lease.session}
        return logging.LoggerAdapter(self._run.reports.log, fields)

    def progress(self, done: float, total: float = 100) -> None:
        """Says how far it is; the last word stays. Cheap: what is said between two writes is written once."""
        self._run.reports.progress(self._run.lease, done, total)

    def cancelled(self) -> bool:
        """Somebody wants it to end: for sync code, which cannot be interrupted."""
        return bool(self._run.cancel_reason)

    def raise_if_cancelled(self) -> None:
        if self._run.cancel_reason:
            raise TaskCancelled(self._run.cancel_reason, self.uuid)

    def spawn(self, call: Call[R]) -> TaskHandle[R]:
        """Adds a task in the very step that settles this one as succeeded: both, or neither.

        ::

            ctx.spawn(send.s("ann"))
        """
        new = call.new_task()
        if self._run.spawned is None:
            self._run.spawned = []
        self._run.spawned.append(new)
        return call.handle(new.uuid)

    async def complete(self, result: object = None, connection: object = None) -> None:
        """Settles this task in your own transaction: with your commit it has succeeded, without it it has not.

        ::

            with connection:                                 # sqlite3, on the file of the store
                connection.execute("UPDATE …")
                await ctx.complete(42, connection=connection)

            async with connection.transaction():             # asyncpg, to the database of the store
                await connection.execute("UPDATE …")
                await ctx.complete(42, connection=connection)

        Effects and settlement happen both or neither, so the effect is there exactly once. TaskCancelled if somebody
        else has this task by now: let it roll your transaction back. What the function returns then counts no more.
        """
        data = b"" if result is None else self._run.source.encode(result)
        verdict = await self._run.reports.settle_in(connection, self._run.completed(data))
        if verdict == "lost":
            raise TaskCancelled("its lease is lost: somebody else has it by now", self.uuid)


def current_task() -> TaskContext:
    """The context of the task that runs here; RuntimeError outside of one."""
    try:
        return _current.get().context
    except LookupError:
        raise RuntimeError("current_task() was called outside of a running task") from None


def running_task() -> TaskContext | None:
    """The same, or None."""
    run = current_run()
    return None if run is None else run.context


def current_run() -> RunState | None:
    """The run whose function is called here, for executors and definitions."""
    return _current.get(None)
