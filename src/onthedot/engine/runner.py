"""Running claimed tasks: decode → around → executor → Outcome. It never touches the store."""

from __future__ import annotations

import asyncio
import random as randomness
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from functools import partial
from types import CoroutineType
from typing import Any, TypeAlias

from onthedot.clock.protocol import Clock, Timer
from onthedot.clock.wakeup import WakeUp
from onthedot.codec.body import Undecodable
from onthedot.errors import TaskTimeout
from onthedot.executors.contract import EncodedResult, Executor
from onthedot.model.context import TaskContext, reset_current, set_current
from onthedot.model.error_policy import cancelled_outcome, failed_outcome, outcome_for_error
from onthedot.model.failures import NOT_STORED
from onthedot.observability.logs import LogObserver
from onthedot.stores.contract import Completed, Effects, Lease, Outcome, Requeued

Around: TypeAlias = Callable[[TaskContext, Callable[[], Awaitable[object]]], Awaitable[object]]

_COROUTINE: type[CoroutineType[Any, Any, object]] = CoroutineType  # so that its value is an object, not unknown


class Run(TaskContext):
    """One claimed task on its way through: what the task sees of itself, and what the engine knows besides."""

    executor: Executor
    started: float = 0.0
    server: asyncio.Task[None] | None = None  # who serves it; None: not begun
    stop = ""  # why it is being ended from outside: cancel, timeout, shutdown, lost
    timer: Timer | None = None
    over = False  # its outcome is out, even if a thread still works on it


class Runner:
    """A queue and as many serving coroutines as have something to wait for.

    One coroutine runs task after task as long as they do not suspend; whenever it begins one and more are queued,
    a second is made ready to take over. So a burst of short tasks costs one coroutine, and long ones have their own.
    """

    def __init__(
        self,
        around: Sequence[Around],
        clock: Clock,
        random: randomness.Random,
        logs: LogObserver,
        wake: WakeUp,
    ) -> None:
        self._around = around
        self._clock = clock
        self._random = random
        self._logs = logs
        self._wake = wake
        self._queue: deque[Run] = deque()
        self._servers: set[asyncio.Task[None]] = set()
        self._helper_coming = False
        self.runs: dict[str, Run] = {}
        self.pending_cancels: dict[str, str] = {}  # cancels since the last ask, of what its answer may tell of
        self.outcomes: list[tuple[Outcome, Run]] = []  # what the next turn settles
        self.freed: list[str] = []  # sources of slots that are free since the last turn

    def start(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self.runs[run.record.uuid] = run
        self._queue.extend(runs)
        for run in runs if self.pending_cancels else ():
            if run.record.uuid in self.pending_cancels:
                self.cancel(run.record.uuid, "cancel", self.pending_cancels.pop(run.record.uuid))
        self._call_helper()

    def adopt_lease(self, lease: Lease) -> bool:
        """What a store has forgotten to have given out, and gives out again to who still runs it: under this lease."""
        run = self.runs.get(lease.uuid)
        if run is None or run.stop or run.over:
            return False
        run.lease = lease
        return True

    def holds(self, lease: Lease) -> bool:
        run = self.runs.get(lease.uuid)
        return run is not None and run.lease == lease

    def release_queued(self) -> None:
        """What has not begun goes back as if it had not been claimed."""
        while self._queue:
            run = self._queue.popleft()
            self._finish(run, Requeued(run.lease, None, counted=False))

    def cancel(self, uuid: str, why: str, reason: str = "") -> None:
        """Ends a run from outside: at once where the executor can, else by asking."""
        run = self.runs.get(uuid)
        if run is None and why == "cancel":
            self.pending_cancels[uuid] = reason
        if run is None or run.stop or run.over:
            return
        run.stop = why
        run.cancel_wanted = reason or _REASONS[why]
        if run.server is None:
            self._queue.remove(run)
            self._finish(run, self._stopped(run))
            return
        if run.executor.hard:
            run.server.cancel()
        elif why != "cancel":
            self._abandon(run)

    def _abandon(self, run: Run) -> None:
        """A thread cannot be ended: the outcome is told now, the slot stays taken until it returns."""
        if run.stop == "timeout":
            self._logs.abandoned(run.record, run.thread)
        run.over = True
        self.outcomes.append((self._stopped(run), run))
        self._wake.set()

    def abandon_running(self) -> None:
        """What does not end although it was cancelled is left alone, and goes back as if it had been cut off."""
        for run in list(self.runs.values()):
            if not run.over:
                self._logs.ignored_cancel(run.record)
                run.stop = "shutdown"
                self._abandon(run)

    # -- serving

    def _call_helper(self) -> None:
        if self._queue and not self._helper_coming:
            self._helper_coming = True
            server = asyncio.create_task(self._serve())
            self._servers.add(server)
            server.add_done_callback(self._servers.discard)

    def _help(self) -> None:
        """Comes after the coroutine that called for it: if that one still runs tasks, it has suspended."""
        self._helper_coming = False
        self._call_helper()

    async def _serve(self) -> None:
        self._helper_coming = False
        queue, around, loop = self._queue, self._around, asyncio.get_running_loop()
        me = asyncio.current_task()
        assert me is not None
        clean = copy_context()
        while queue:
            run = queue.popleft()
            run.server = me
            if queue and not self._helper_coming:
                self._helper_coming = True
                loop.call_soon(self._help)
            source, options = run.declared, run.declared.options
            token = set_current(run)
            try:
                run.arguments, run.headers = source.decode(run.record.body)
                if around or options.timeout is not None:
                    value = await self._guarded(run)
                else:  # the task's own coroutine, with nothing wrapped around it
                    value = await run.executor.run(source.call, run.arguments)
                if type(value) is _COROUTINE:  # a sync function, or a wrapper of one, that gave a coroutine back
                    value = await value
                result = b"" if value is None else self._encoded(run, value)
                also = None if run.spawned is None else Effects(tuple(run.spawned))
                outcome: Outcome | None = Completed(run.lease, result, options.keep, also, options.keep_result)
            except BaseException as error:  # noqa: BLE001 - whatever a task raises fails that task only
                outcome = self._raised(run, error)
            reset_current(token)
            self._finish(run, outcome)
            try:
                left_behind = me.cancelling() or copy_context() != clean
            except Exception:  # noqa: BLE001 - values that cannot be compared, such as arrays, are others
                left_behind = True
            if left_behind:  # the next task gets a fresh coroutine
                self._call_helper()
                return

    def _guarded(self, run: Run) -> Awaitable[object]:
        """With a time limit, or with layers around."""
        if run.declared.options.timeout is not None:
            begin = partial(self._limit, run, run.declared.options.timeout)
            if run.executor.tells_start:
                run.begun = begin
            else:
                begin()
        call = partial(run.executor.run, run.declared.call, run.arguments)
        return self._through(run, call) if self._around else call()

    def _raised(self, run: Run, error: BaseException) -> Outcome | None:
        if run.over:  # told before, and what comes too late changes nothing
            return None
        if isinstance(error, Undecodable) and not run.arguments:
            return self._undecodable(run, error)
        if isinstance(error, asyncio.CancelledError) and run.stop:
            return self._stopped(run)
        return self._judged(error, run)

    def _finish(self, run: Run, outcome: Outcome | None) -> None:
        if self.runs.get(run.record.uuid) is run:  # else it was abandoned, and the next try is on its way
            del self.runs[run.record.uuid]
        self.freed.append(run.record.source)
        if run.timer is not None:
            run.timer.cancel()
        if not run.over and outcome is not None:
            run.over = True
            self.outcomes.append((outcome, run))
        self._wake.set()

    def _limit(self, run: Run, timeout: int) -> None:
        run.deadline_ms = self._clock.now() + timeout
        run.timer = self._clock.call_later(timeout, lambda: self.cancel(run.record.uuid, "timeout"))

    async def _through(self, run: Run, call: Callable[[], Awaitable[object]]) -> object:
        if run.executor.encodes:
            call = partial(self._opened, run, call)
        for layer in reversed(self._around):
            call = partial(layer, run, call)
        return await call()

    async def _opened(self, run: Run, call: Callable[[], Awaitable[object]]) -> object:
        """The value itself for the layers; one that could not be encoded is out of reach and goes through as it is."""
        value = await call()
        return (
            run.declared.decode_result(value.data) if isinstance(value, EncodedResult) and not value.problem else value
        )

    def _encoded(self, run: Run, value: object) -> bytes:
        if type(value) is EncodedResult:
            if value.problem:
                self._logs.result_not_stored(run.record, ValueError(value.problem))
            return value.data
        try:
            return run.declared.encode(value)
        except ValueError as error:
            self._logs.result_not_stored(run.record, error)
            return NOT_STORED

    # -- judging

    def _undecodable(self, run: Run, error: Undecodable) -> Outcome:
        problem = Undecodable(f"{error}; the raw body is kept: {run.record.body[:200]!r}")
        self._logs.undecodable(run.record, problem)
        return failed_outcome(problem, run.record, run.lease, run.declared.options)

    def _judged(self, error: BaseException, run: Run) -> Outcome:
        options = run.declared.options
        outcome, error = outcome_for_error(error, run.record, run.lease, options, self._random)
        self._logs.error_classified(run.record, error, outcome, options.max_retries)
        return outcome

    def _stopped(self, run: Run) -> Outcome:
        match run.stop:
            case "timeout":
                seconds = (run.declared.options.timeout or 0) / 1000
                error = TaskTimeout(run.record.uuid, "onthedot.TaskTimeout", f"no result after {seconds:g} s")
                return self._judged(error, run)
            case "cancel":
                return cancelled_outcome(run.record, run.lease, run.declared.options, run.cancel_wanted)
            case _:
                return Requeued(run.lease, None, counted=False)


_REASONS = {"cancel": "cancelled", "timeout": "timed out", "shutdown": "shutdown", "lost": "lease lost"}
