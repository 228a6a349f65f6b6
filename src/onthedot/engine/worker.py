"""The loop of a worker: turn, dispatch, sleep. It claims no more tasks than there are free slots."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from random import Random

from onthedot.clock.protocol import Clock
from onthedot.clock.wakeup import WakeUp
from onthedot.definitions.sources import Sources
from onthedot.engine.config import WorkerConfig
from onthedot.engine.dispatcher import Dispatcher
from onthedot.engine.handoff import Handoff
from onthedot.engine.heartbeat import HeartbeatDelegate, HeartbeatRunner
from onthedot.engine.hint_listener import HintListener
from onthedot.engine.linked_tasks import LinkedTasks
from onthedot.engine.maintenance import Maintenance
from onthedot.engine.outcome_buffer import OutcomeBuffer
from onthedot.engine.retry_delay import RetryDelay
from onthedot.engine.run import Run
from onthedot.engine.runner import Around, Runner
from onthedot.engine.schedule_firer import ScheduleFirer
from onthedot.engine.session import WorkerSession
from onthedot.engine.slots import PoolUsage, Slots
from onthedot.engine.task_reports import TaskReports
from onthedot.engine.turns import Turns
from onthedot.engine.worker_state import WorkerState
from onthedot.errors import StoreRefused
from onthedot.executors.contract import Executor
from onthedot.model.context import RunState
from onthedot.model.durable_context import DurableRunProtocol
from onthedot.model.streams import StreamRunProtocol
from onthedot.observability.events import Observer
from onthedot.observability.meter import Meter
from onthedot.stores.capabilities import HasHandoff, find_capability
from onthedot.stores.contract import ClaimResult, LeasedTasks, Store

_GRACE = 1.0  # seconds for the clean-up of cancelled tasks when the time to stop is over
LAST_TURN = 5.0  # seconds in which the store must take the last outcomes


class Worker:
    """One worker of a process. It is created on its event loop, started once and stopped once.

    declare: writes limits and schedules of code to the store; repeated when code declares more. on_turn: called after
    each turn; counts of tasks may have changed. on_fatal: called with the error that ends the loop. heartbeat_delegate:
    sends heartbeats for this process. new_durable_run: makes the steps and waits of a run at their first use. linked:
    for tasks with links. meter: its figures are written to the store. new_stream_run: saves the items of a run whose
    function is an async generator.
    """

    def __init__(
        self,
        config: WorkerConfig,
        *,
        store: Store,
        sources: Sources,
        executors: Mapping[str, Executor],
        firer: ScheduleFirer,
        schedules: Mapping[str, object],
        declare: Callable[[], Awaitable[None]],
        clock: Clock,
        random: Random,
        new_uuid: Callable[[], str],
        observer: Observer,
        task_log: logging.Logger,
        heartbeat_runner: HeartbeatRunner,
        heartbeat_delegate: HeartbeatDelegate | None = None,
        middleware: Sequence[Around] = (),
        new_durable_run: Callable[[RunState], DurableRunProtocol] | None = None,
        linked: LinkedTasks | None = None,
        new_stream_run: Callable[[RunState], StreamRunProtocol] | None = None,
        meter: Meter | None = None,
        on_turn: Callable[[], object] | None = None,
        on_fatal: Callable[[BaseException], object] | None = None,
    ) -> None:
        self._config = config
        self._sources = sources
        self._declare = declare
        self._clock = clock
        self._observer = observer
        self._on_fatal = on_fatal
        self._loop_task: asyncio.Task[None] | None = None
        self._unwatch: Callable[[], None] | None = None
        self.last_error: BaseException | None = None
        self.idle: asyncio.Event = asyncio.Event()  # nothing to do before the next alarm
        wakeup = WakeUp(clock)
        outcomes = self._outcomes = OutcomeBuffer()
        slots = self._slots = Slots(sources, config.slots, one_pool=config.one_pool, claim_batch=config.claim_batch)
        runner = self._runner = Runner(
            middleware, clock, random, observer, wakeup, slots, outcomes, self._is_fenced, linked, config.on_failed
        )
        reports = TaskReports(config, store, runner, wakeup, observer, task_log, new_durable_run, new_stream_run)
        session = WorkerSession(
            config, store, sources, schedules, clock, observer, new_uuid, heartbeat_runner, heartbeat_delegate
        )
        handoff: Handoff | None = None
        found = find_capability(store, HasHandoff)
        if found is not None:
            handoff = Handoff(config, found, sources, session, slots, runner, outcomes, wakeup, self._start_handed_off)
        turns = self._turns = Turns(
            config, store, sources, session, slots, runner, outcomes, reports, handoff, clock, observer, on_turn
        )
        self._dispatcher = Dispatcher(
            sources, executors, session, slots, runner, outcomes, reports, handoff, firer, clock, observer, linked
        )
        self._maintenance = Maintenance(config, store, session, slots, clock, random, observer, declare, meter, turns)
        self.wakeup: WakeUp = wakeup
        self.session: WorkerSession = session
        self.handoff: Handoff | None = handoff
        self.hint_listener: HintListener = HintListener(store, slots, runner, handoff, wakeup, clock, observer)

    # -- start and stop

    async def start(self) -> None:
        self._runner.tracer = self._config.tracer
        await self._declare()
        await self.session.open(self._cancel, self._on_session_lost, self.hint_listener.run)
        await self._maintenance.start()
        self._unwatch = self._sources.watch(self._on_sources_changed)
        self._loop_task = asyncio.create_task(self._loop())

    async def stop(self, timeout: float | None) -> None:
        """Runs finish, or are requeued uncounted after `timeout` seconds."""
        assert self._loop_task is not None
        loop = self._loop_task
        self.stop_claiming()
        done, _ = await asyncio.wait([loop], timeout=timeout)
        if not done:
            self.cancel_running()
            done, _ = await asyncio.wait([loop], timeout=_GRACE)
        if not done:
            self._runner.abandon_running()
            done, _ = await asyncio.wait([loop], timeout=LAST_TURN)
        if not done:  # the store does not take the outcomes: these tasks will run again
            self._observer.outcomes_dropped(len(self._outcomes))
            loop.cancel()
            await asyncio.wait([loop])
        self._maintenance.stop()
        if done:
            await self._maintenance.write_last_figures()
        try:
            await self.session.close()
        except Exception as error:  # noqa: BLE001 - reported; its tasks are requeued when the lease runs out
            self._observer.store_failed("closing the session", error)
        self._observer.flush()

    def stop_claiming(self) -> None:
        """No claim and no start from now on; queued runs are requeued."""
        if not self._slots.closed:
            self._slots.close()
            if self._unwatch is not None:
                self._unwatch()
            self._runner.release_queued()
            self.wakeup.set()

    def cancel_running(self) -> None:
        """Ends the runs now; they are requeued uncounted."""
        self._runner.cancel_all("shutdown")

    # -- state, for the runtime and for tests

    @property
    def runs(self) -> Sequence[Run]:
        """Runs from their claim until their function has returned."""
        return list(self._runner.runs.values())

    @property
    def slot_usage(self) -> Mapping[str, PoolUsage]:
        """Slots by pool; "" is the one for all executors."""
        return self._slots.usage()

    @property
    def state(self) -> WorkerState | None:
        """Describes this worker; None: it writes no figures."""
        return self._maintenance.state

    @property
    def session_id(self) -> str:
        return self.session.id

    @property
    def turns(self) -> int:
        """Claims that were answered in this session."""
        return self.session.claim_number

    def is_drained(self) -> bool:
        """Nothing runs, and every outcome is in the store."""
        return not self._outcomes and not self._runner.is_busy()

    def recheck(self) -> None:
        """Looks at definitions and at every source again in the next turn, which begins now."""
        self._maintenance.mark_definitions_changed()
        self._slots.refresh()
        self.wakeup.set()

    def wake_later(self, sources: Collection[str], ms: float) -> None:
        """Looks at these sources again after so many milliseconds, which they had no capacity for. From any thread."""
        self.wakeup.call_soon(lambda: self._clock.call_later(ms, lambda: self._wake(sources)))

    def _wake(self, sources: Collection[str]) -> None:
        self._slots.wake(sources)
        self.wakeup.set()

    def watch_turns(self, on_turn: Callable[[], object]) -> None:
        """Sets `on_turn`."""
        self._turns.on_turn = on_turn

    def stop_purging(self) -> None:
        """Keeps ended tasks: a test asserts on them."""
        self._maintenance.stop_purging()

    # -- the loop

    async def _loop(self) -> None:
        delay = RetryDelay()
        failed = False
        while not (self._slots.closed and self.is_drained()):
            try:
                await self._step()
            except StoreRefused as error:  # a retry would not help
                self.last_error = error
                self.stop_claiming()
                if self._on_fatal is not None:
                    self._on_fatal(error)
                return
            except BaseException as error:
                if not self._may_continue_after(error):
                    raise
                self.last_error = error
                failed = True
                self._observer.store_failed("the loop", error)
                self.wakeup.clear()
                await self.wakeup.wait(delay.next())
            else:
                if failed:
                    failed = False
                    delay.reset()
                    self._observer.store_recovered("the loop")

    def _may_continue_after(self, error: BaseException) -> bool:
        """A cancel that this task did not get comes from inside a store, and must not end the worker."""
        if isinstance(error, asyncio.CancelledError):
            return self._loop_task is not None and not self._loop_task.cancelling()
        return isinstance(error, Exception)

    async def _step(self) -> None:
        self.wakeup.clear()  # clear, then look: no hint is lost
        if self.session.is_fenced():
            await self._replace_session()
            return
        await self._maintenance.write_figures()
        may_claim = await self._maintenance.update_definitions()
        turn = await self._turns.next(claims=may_claim)  # settle + claim in one call
        has_other_data = self._has_other_data(turn.claim)  # first: a loss is reported, even if the lease is over
        if not turn.alive or self.session.is_fenced() or has_other_data:
            await self._replace_session()  # tasks of the answer are released: other workers may have them by now
        elif await self._dispatcher.dispatch(turn.claim) or await self._maintenance.purge_if_due():
            await asyncio.sleep(0)  # more work now; other coroutines run first
        else:
            await self._sleep()

    async def _sleep(self) -> None:
        """Until a hint, a freed slot, an outcome or an alarm; `poll_interval` at the latest."""
        if self._slots.closed:
            if not self.is_drained():  # otherwise nothing would wake it
                await self.wakeup.wait(None)
            return
        if self.is_drained():
            self.idle.set()
        await self.wakeup.wait(self._time_to_next_turn())
        self.idle.clear()

    def _time_to_next_turn(self) -> float:
        """ms"""
        now = self._clock.now()
        if self._maintenance.retry_at is not None:  # nothing is claimed before
            return max(0.0, self._maintenance.retry_at - now)
        waits = [self._turns.next_poll_in(now)]
        if self._turns.next_alarm is not None:
            waits.append(max(0.0, self._turns.next_alarm - now))
        if self._maintenance.figures is not None:
            waits.append(self._maintenance.figures.next_in(now))
        idle_for = self._slots.next_in(now)
        if idle_for is not None:
            waits.append(idle_for)
        return min(waits)

    # -- events

    def _start_handed_off(self, leased: LeasedTasks) -> None:
        """The loop sleeps meanwhile; it wakes up with the first outcome."""
        self.idle.clear()
        self._dispatcher.start(leased)
        if self._turns.on_turn is not None:
            self._turns.on_turn()

    def _on_sources_changed(self) -> None:
        """From any thread."""
        self._maintenance.mark_definitions_changed()  # not later: a turn that begins before could exceed a new limit
        self.wakeup.call_soon(self.recheck)

    def _cancel(self, uuid: str) -> None:
        self._runner.cancel(uuid, "cancel")

    def _is_fenced(self) -> bool:
        return self.session.is_fenced()

    def _on_session_lost(self) -> None:
        """Other workers may run the same tasks, so the runs end. The loop wakes up and replaces the session."""
        self._runner.cancel_all("lost")
        self.wakeup.set()  # a run may ignore its cancel, and a loop that stops has no poll interval

    def _has_other_data(self, claim: ClaimResult | None) -> bool:
        """The store was replaced, so nothing that runs here is known to it.

        If it went back to an older state that knows this session, the runs continue: it leases them again.
        """
        loss = self.session.find_data_loss(claim)
        if loss is None:
            return False
        self._observer.data_lost(self._config.store, loss.before, loss.after)
        self._maintenance.mark_definitions_changed()
        return loss.is_complete

    async def _replace_session(self) -> None:
        lost = self.session.id
        self._on_session_lost()
        if self.handoff is not None:
            self.handoff.discard()
        await self.session.replace()
        self._maintenance.mark_definitions_changed()  # the store may have lost them together with the session
        self._observer.session_lost(lost)
