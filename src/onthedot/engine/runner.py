"""Running claimed tasks: decode → middleware → executor → Outcome. The runner never touches the store."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from random import Random
from types import CoroutineType
from typing import Any, TypeAlias

from msgspec.structs import replace

from onthedot.clock.protocol import Clock
from onthedot.clock.wakeup import WakeUp
from onthedot.codec.body import Undecodable
from onthedot.engine.config import OnFailed
from onthedot.engine.failure_effects import FailureEffects
from onthedot.engine.linked_tasks import LinkedTasks, NotPrepared
from onthedot.engine.outcome_buffer import OutcomeBuffer
from onthedot.engine.run import Run, StopCause
from onthedot.engine.run_timeouts import RunTimeouts
from onthedot.engine.slots import Slots
from onthedot.engine.suspension import find_suspension, with_events
from onthedot.errors import StoreError, TaskCancelled
from onthedot.executors.contract import EncodedResult
from onthedot.model.context import TaskContext, reset_current, set_current
from onthedot.model.error_policy import cancelled_outcome, failed_outcome, outcome_for_error
from onthedot.model.failures import NOT_STORED, is_a, with_times
from onthedot.model.traces import RunSpan, TaskTracer
from onthedot.observability.events import Observer
from onthedot.stores.contract import Completed, Ended, Lease, Outcome, Record, Requeued

Around: TypeAlias = Callable[[TaskContext, Callable[[], Awaitable[object]]], Awaitable[object]]

_COROUTINE: type[CoroutineType[Any, Any, object]] = CoroutineType  # typed, so that its value is an object
_PREPARE_AGAIN = 1000  # ms
_CANCEL_REASONS: dict[StopCause, str] = {
    "cancel": "cancelled",
    "timeout": "timed out",
    "shutdown": "shutdown",
    "lost": "lease lost",
}


@dataclass(eq=False)
class Runner:
    """A queue of runs, and as many serving coroutines as have suspended tasks.

    One coroutine runs task after task while they do not suspend. When it starts one and more are queued, a second
    coroutine is scheduled to take over. So a burst of short tasks shares one coroutine, and a long task has its own.
    is_fenced: the session of the worker may not act any more, because its lease is over.
    """

    middleware: Sequence[Around]
    clock: Clock
    random: Random
    observer: Observer
    wakeup: WakeUp
    slots: Slots
    outcomes: OutcomeBuffer
    is_fenced: Callable[[], bool]
    linked: LinkedTasks | None = None
    on_failed: OnFailed | None = None
    tracer: TaskTracer | None = None
    note_crash: Callable[[Run], Awaitable[None]] | None = None  # before the run after one whose worker died

    def __post_init__(self) -> None:
        self._queue: deque[Run] = deque()
        self._held: deque[Run] = deque()  # claimed ahead: each begins when a run ends
        self._serving: set[asyncio.Task[None]] = set()
        self._is_server_due = False
        self._early_cancels: dict[str, str] = {}  # uuid → reason
        self.runs: dict[str, Run] = {}
        self._timeouts = RunTimeouts(self.clock, self._on_timeout)
        self.failure_effects: FailureEffects = FailureEffects(self.on_failed, self.observer)  # also for chores

    def start(self, runs: Sequence[Run], ahead: int = 0) -> None:
        """ahead: as many of the last ones have no slot yet."""
        for run in runs:
            self.runs[run.record.uuid] = run
        queued = len(runs) - ahead
        self._queue.extend(runs[:queued])
        self._held.extend(runs[queued:])
        if self._early_cancels:
            for uuid in self._early_cancels.keys() & self.runs.keys():
                self.cancel(uuid, "cancel", self._early_cancels.pop(uuid))
        self._start_server()

    def is_busy(self) -> bool:
        """A run has no outcome yet."""
        return any(not run.ended for run in self.runs.values())

    def adopt_lease(self, lease: Lease) -> bool:
        """Continues a run under a new lease: a store that has lost its last writes leases a running task again.

        A durable run starts again: steps that it has saved may be lost, and later ones would follow a gap.
        """
        run = self.runs.get(lease.uuid)
        if run is None or run.stop_cause or run.ended:
            return False
        is_renewed = run.lease != lease
        run.lease = lease
        if is_renewed and run.durable is not None:
            self.cancel(lease.uuid, "lost")
        return True

    def holds(self, lease: Lease) -> bool:
        run = self.runs.get(lease.uuid)
        return run is not None and run.lease == lease

    def has_held(self) -> bool:
        """Runs that were claimed ahead wait for a slot."""
        return bool(self._held)

    def release_held(self) -> None:
        """Requeues the runs that wait for a slot, as if they had not been claimed: another worker may have one."""
        held = list(self._held)
        self._held.clear()
        for run in held:
            self._finish(run, Requeued(run.lease, None, counted=False))

    def release_queued(self) -> None:
        """Requeues the runs that have not begun, as if they had not been claimed."""
        self.release_held()
        while self._queue:
            run = self._queue.popleft()
            self._finish(run, Requeued(run.lease, None, counted=False))

    def forget_early_cancels(self) -> None:
        """A claim is sent now: only cancels from here on can concern tasks of its answer."""
        self._early_cancels.clear()

    def cancel(self, uuid: str, cause: StopCause, reason: str = "") -> None:
        """Ends a run from outside: at once if the executor can, otherwise by a request to the function.

        A stronger cause ends a run that is being ended for a weaker one: its clean-up may take too long.
        """
        run = self.runs.get(uuid)
        if run is None and cause == "cancel":
            self._early_cancels[uuid] = reason
        if run is None or not run.stop(cause, reason or _CANCEL_REASONS[cause]):
            return
        if run.serving_task is None:
            waiting = self._held if run in self._held else self._queue
            waiting.remove(run)
            self._finish(run, self._outcome_of_stop(run))
        elif run.executor.hard:
            run.serving_task.cancel()
        elif cause != "cancel":
            self._abandon(run)

    def cancel_all(self, cause: StopCause) -> None:
        for uuid in list(self.runs):
            self.cancel(uuid, cause)
        self.wakeup.set()

    def _abandon(self, run: Run) -> None:
        """A thread cannot be ended: the outcome is final now, and the slot stays taken until the thread returns."""
        if run.stop_cause == "timeout":
            self.observer.timeout_ignored(run.record, run.thread)
        run.ended = True
        outcome = self._outcome_of_stop(run)
        if run.record.links is not None:
            outcome = self._adjusted(run, outcome)
        outcome = self.failure_effects.attach(run.record, self._with_times(run, outcome))
        if run.span is not None:
            outcome = _end_span(run.span, outcome)
        self.outcomes.add((outcome, run))
        self.wakeup.set()

    def abandon_running(self) -> None:
        """Requeues the runs that continue although they were cancelled, as if they had been interrupted."""
        for run in list(self.runs.values()):
            if not run.ended:
                self.observer.cancel_ignored(run.record)
                run.stop("shutdown", _CANCEL_REASONS["shutdown"])
                self._abandon(run)

    # -- serving

    def _start_server(self) -> None:
        if self._queue and not self._is_server_due:
            self._is_server_due = True
            serving_task = asyncio.create_task(self._serve())
            self._serving.add(serving_task)
            serving_task.add_done_callback(self._on_server_end)

    def _on_server_end(self, server: asyncio.Task[None]) -> None:
        """A server must not raise. If it does, its run ends as failed, and another server takes the queue."""
        self._serving.discard(server)
        if server.cancelled() or (error := server.exception()) is None:
            return
        for run in [each for each in self.runs.values() if each.serving_task is server]:
            outcome = failed_outcome(error, run.record, run.lease, run.source.options)
            self._finish(run, outcome)
            self.observer.error_classified(run.record, error, outcome, run.source.options.max_retries)
        self._start_server()

    def _take_over(self) -> None:
        """Runs after the coroutine that scheduled it: if tasks are still queued then, that one has suspended."""
        self._is_server_due = False
        self._start_server()

    async def _serve(self) -> None:
        self._is_server_due = False
        queue = self._queue
        tracer = self.tracer
        loop = asyncio.get_running_loop()
        this_task = asyncio.current_task()
        assert this_task is not None
        clean = copy_context()
        while queue:
            run = queue.popleft()
            run.serving_task = this_task
            if queue and not self._is_server_due:
                self._is_server_due = True
                loop.call_soon(self._take_over)
            source = run.source
            token = set_current(run)
            try:
                record = run.record
                if record.history.reason == "crash" or (record.links is not None and self._has_inputs(record)):
                    await self._prepare(run)
                run.arguments, run.headers = source.decode(run.record.body)
                if tracer is not None:
                    run.span = tracer.begin_run(run)
                value = await self._call(run)
                if type(value) is _COROUTINE:  # a sync function, or a wrapper of one, has returned a coroutine
                    value = await value
                if run.durable is not None:
                    run.durable.finish()
                outcome: Outcome | None = run.completed(b"" if value is None else self._encode(run, value))
            except BaseException as error:  # noqa: BLE001 - an error of a task fails that task only
                outcome = self._outcome_of_error(run, error)
            if run.span is not None:
                run.span.leave()
            reset_current(token)
            self._finish(run, outcome)
            try:
                is_changed = this_task.cancelling() or copy_context() != clean
            except Exception:  # noqa: BLE001 - values that cannot be compared, such as arrays, count as changed
                is_changed = True
            if is_changed:  # the next task gets a new coroutine
                self._start_server()
                return

    async def _prepare(self, run: Run) -> None:
        """Reads what the run needs from the store, and keeps there that a run before it has ended with its worker."""
        if run.record.history.reason == "crash" and self.note_crash is not None:
            await self.note_crash(run)
            self._check_unended(run)
        if self.linked is None or not self._has_inputs(run.record):
            return
        try:
            run.record = await self.linked.prepare(run.record)
        except StoreError as error:
            self.observer.store_failed("reading the results that a task needs", error)
            raise NotPrepared from error
        self._check_unended(run)

    def _has_inputs(self, record: Record) -> bool:
        """Whether its body refers to other tasks."""
        return self.linked is not None and record.links is not None and self.linked.has_inputs(record)

    def _check_unended(self, run: Run) -> None:
        """Meanwhile, others may have begun it."""
        if run.ended or self.is_fenced():
            raise NotPrepared

    def _call(self, run: Run) -> Awaitable[object]:
        """Without middleware, it is the function's own coroutine, without a wrapper."""
        timeout = run.source.options.timeout
        if timeout is not None:
            if run.executor.tells_start:
                run.on_begin = partial(self._timeouts.start, run, timeout)
            else:
                self._timeouts.start(run, timeout)
        if self.middleware:
            return self._through_middleware(run)
        return run.executor.run(run.source.call, run.arguments)

    def _on_timeout(self, run: Run) -> None:
        if self.runs.get(run.record.uuid) is run:  # otherwise it was abandoned
            self.cancel(run.record.uuid, "timeout")

    async def _through_middleware(self, run: Run) -> object:
        call: Callable[[], Awaitable[object]] = partial(run.executor.run, run.source.call, run.arguments)
        if run.executor.encodes:
            call = partial(self._decoded, run, call)
        for layer in reversed(self.middleware):
            call = partial(layer, run.context, call)
        return await call()

    async def _decoded(self, run: Run, call: Callable[[], Awaitable[object]]) -> object:
        """The result as middleware expects it. One that could not be encoded passes as it is."""
        value = await call()
        if isinstance(value, EncodedResult) and not value.problem:
            return run.source.decode_result(value.data)
        return value

    def _encode(self, run: Run, value: object) -> bytes:
        if type(value) is EncodedResult:
            if value.problem:
                self.observer.result_not_stored(run.record, ValueError(value.problem))
            return value.data
        try:
            return run.source.encode(value)
        except ValueError as error:
            self.observer.result_not_stored(run.record, error)
            return NOT_STORED

    def _finish(self, run: Run, outcome: Outcome | None) -> None:
        if self.runs.get(run.record.uuid) is run:  # otherwise it was abandoned, and the next run may be here
            del self.runs[run.record.uuid]
        self.slots.release(run.record.source)
        if self._held and run.serving_task is not None and self.slots.is_async(run.record.source):
            self._queue.append(self._held.popleft())
        self._timeouts.end(run)
        if not self.runs:
            self._timeouts.release()
        if not run.ended and outcome is not None:
            run.ended = True
            if run.record.links is not None:
                if type(outcome) is not Completed or outcome.effects is not None:
                    outcome = self._adjusted(run, outcome)
                self.slots.expect_end_of_wait()
            if type(outcome) is not Completed:
                outcome = self._with_times(run, outcome)
                outcome = self.failure_effects.attach(run.record, outcome)
            if run.span is not None:
                outcome = _end_span(run.span, outcome)
            self.outcomes.add((outcome, run))
        self.wakeup.set()

    # -- outcomes

    def _adjusted(self, run: Run, outcome: Outcome) -> Outcome:
        if self.linked is None:
            return outcome
        return self.linked.adjust(run.record, outcome, cancelled=run.stop_cause == "cancel")

    def _with_times(self, run: Run, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Requeued | Ended) or not outcome.error:
            return outcome
        error = with_times(outcome.error, run.started, self.clock.now(), run.lease.session, run.record.due)
        return replace(outcome, error=error)

    def _outcome_of_error(self, run: Run, error: BaseException) -> Outcome | None:
        if run.ended:  # abandoned: its outcome is final
            return None
        if is_a(error, NotPrepared):
            return Requeued(run.lease, _PREPARE_AGAIN, counted=False)
        if is_a(error, Undecodable) and not run.arguments:
            problem = Undecodable(str(error), error.argument)  # without frames: no code of the user's has run
            outcome = failed_outcome(problem, run.record, run.lease, run.source.options)
            self.observer.error_classified(run.record, problem, outcome, run.source.options.max_retries)
            return outcome
        if is_a(error, asyncio.CancelledError) and run.stop_cause:
            return self._outcome_of_stop(run)
        is_durable = run.durable is not None or run.stream is not None
        if is_durable and (suspension := find_suspension(error)) is not None:
            return with_events(replace(suspension.outcome, lease=run.lease), run)  # the lease may have been adopted
        return self._classified(run, error)

    def _classified(self, run: Run, error: BaseException) -> Outcome:
        options = run.source.options
        if run.classified is not None and run.classified[0] is error:
            outcome: Outcome = replace(run.classified[1], lease=run.lease)  # the lease may have been adopted since
        else:
            outcome, error = outcome_for_error(error, run.record, run.lease, options, self.random)
        self.observer.error_classified(run.record, error, outcome, options.retries_for(error))
        return outcome

    def _outcome_of_stop(self, run: Run) -> Outcome:
        error = run.error_of_stop()
        if error is None:
            return Requeued(run.lease, None, counted=False)
        if is_a(error, TaskCancelled):
            return cancelled_outcome(run.record, run.lease, run.source.options, error.reason)
        return self._classified(run, error)


def _end_span(span: RunSpan, outcome: Outcome) -> Outcome:
    """Tasks that are added with the outcome continue the trace; of a completed run they do already."""
    span.end(outcome)
    effects = outcome.effects
    if effects is None or not effects.tasks or type(outcome) is Completed:
        return outcome
    return replace(outcome, effects=replace(effects, tasks=span.context.pass_on(effects.tasks)))
