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

_current: ContextVar[TaskContext] = ContextVar("onthedot_task")
set_current: Callable[[TaskContext], Token[TaskContext]] = _current.set
reset_current: Callable[[Token[TaskContext]], None] = _current.reset


class ReportSink(Protocol):
    """Where a running task's words go."""

    @property
    def log(self) -> logging.Logger: ...
    def progress(self, context: TaskContext, done: float, total: float) -> None: ...
    async def settle_in(self, connection: object, outcome: Outcome) -> Verdict: ...


class TaskContext:
    """The task that is running here.

    ``uuid`` · ``source`` · ``args`` · ``attempt`` · ``is_last_attempt`` · ``last_error`` · ``fence``
    · ``idempotency_key`` · ``scheduled_for`` · ``deadline`` · ``tags`` · ``metadata`` · ``logger``
    """

    # Rarely said, so they are the class's until they are: a context is made for every run.
    thread = ""  # the name of the one it runs in
    cancel_wanted = ""  # the reason, once somebody wants it to end
    deadline_ms: float | None = None
    begun: Callable[[], object] | None = None  # its time counts from this call, if the executor makes it wait first
    spawned: list[NewTask] | None = None
    arguments: Mapping[str, Any] = MappingProxyType({})  # until the body is read
    headers = NO_HEADERS

    def __init__(self, source: Source, record: Record, lease: Lease, reports: ReportSink) -> None:
        self.declared = source
        self.record = record
        self.lease = lease
        self._reports = reports

    @property
    def uuid(self) -> str:
        return self.record.uuid

    @property
    def source(self) -> str:
        return self.record.source

    @property
    def args(self) -> Mapping[str, Any]:
        """By name, as they were passed."""
        return self.arguments

    @property
    def attempt(self) -> int:
        """From 1; a worker's death counts as an attempt, a snooze does not."""
        return self.record.attempt

    @property
    def is_last_attempt(self) -> bool:
        """No retry is left after this run."""
        return self.record.history.retries >= self.declared.options.max_retries

    @property
    def last_error(self) -> TaskFailure | None:
        from onthedot.model.failures import decode_failure

        return decode_failure(self.record.history.error)

    @property
    def fence(self) -> int:
        """Grows with every claim: pass it to systems that can refuse a stale writer."""
        return self.lease.fence

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this task."""
        return self.record.uuid

    @property
    def scheduled_for(self) -> datetime:
        """The nominal time: of the schedule's window, else when the task was due."""
        if self.headers.scheduled_for is not None:
            return from_ms(self.headers.scheduled_for)
        if self.headers.at is not None:
            return datetime.fromisoformat(self.headers.at)
        return from_ms(self.record.due)

    @property
    def deadline(self) -> datetime | None:
        """When the timeout strikes."""
        return None if self.deadline_ms is None else from_ms(self.deadline_ms)

    @property
    def tags(self) -> tuple[str, ...]:
        return self.record.policy.tags

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.headers.metadata or {}

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """``onthedot.task``, with uuid, source and attempt on every record."""
        fields = {"uuid": self.uuid, "source": self.source, "attempt": self.attempt, "worker": self.lease.session}
        return logging.LoggerAdapter(self._reports.log, fields)

    def progress(self, done: float, total: float = 100) -> None:
        """Says how far it is; the last word stays. Cheap: what is said between two writes is written once."""
        self._reports.progress(self, done, total)

    def cancelled(self) -> bool:
        """Somebody wants it to end: for sync code, which cannot be interrupted."""
        return bool(self.cancel_wanted)

    def raise_if_cancelled(self) -> None:
        if self.cancel_wanted:
            raise TaskCancelled(self.cancel_wanted, self.uuid)

    def spawn(self, call: Call[R]) -> TaskHandle[R]:
        """Adds a task in the very step that settles this one as succeeded: both, or neither.

        ::

            ctx.spawn(send.s("ann"))
        """
        new = call.new_task()
        if self.spawned is None:
            self.spawned = []
        self.spawned.append(new)
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
        data = b"" if result is None else self.declared.encode(result)
        options = self.declared.options
        also = None if self.spawned is None else Effects(tuple(self.spawned))
        done = Completed(self.lease, data, options.keep, also, options.keep_result)
        verdict = await self._reports.settle_in(connection, done)
        if verdict == "lost":
            raise TaskCancelled("its lease is lost: somebody else has it by now", self.uuid)


def current_task() -> TaskContext:
    """The context of the task that runs here; RuntimeError outside of one."""
    try:
        return _current.get()
    except LookupError:
        raise RuntimeError("current_task() was called outside of a running task") from None


def running_task() -> TaskContext | None:
    """The same, or None."""
    try:
        return _current.get()
    except LookupError:
        return None
