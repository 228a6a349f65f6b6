"""One turn: outcomes go to the store and a claim comes back, in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onthedot.clock.protocol import Clock
from onthedot.definitions.sources import Sources
from onthedot.engine.config import WorkerConfig
from onthedot.engine.handoff import Handoff
from onthedot.engine.outcome_buffer import Entry, OutcomeBuffer
from onthedot.engine.outcome_isolation import OutcomeIsolation
from onthedot.engine.runner import Runner
from onthedot.engine.session import WorkerSession
from onthedot.engine.slots import Slots
from onthedot.engine.store_clock import StoreClock
from onthedot.engine.task_reports import TaskReports
from onthedot.errors import StoreError
from onthedot.observability.events import Observer
from onthedot.stores.contract import ClaimRequest, Store, TurnResult

SLOW_TURN = 100.0  # ms


@dataclass(eq=False)
class Turns:
    """Builds the claim request, sends it with the outcomes, and restores the outcomes if the store does not answer."""

    config: WorkerConfig
    store: Store
    sources: Sources
    session: WorkerSession
    slots: Slots
    runner: Runner
    outcomes: OutcomeBuffer
    reports: TaskReports
    handoff: Handoff | None
    clock: Clock
    observer: Observer
    on_turn: Callable[[], object] | None

    def __post_init__(self) -> None:
        self._store_clock = StoreClock(self.observer)
        self._isolation = OutcomeIsolation(
            self.store, self.session, self.outcomes, self.clock, self.observer, self.runner.failure_effects
        )
        self._polled_at = self.clock.now()
        self._sent_number = 0  # of the last claim request, answered or not
        self.next_alarm: float | None = None  # of any kind, by this process's clock

    @property
    def clock_offset(self) -> float | None:
        """The ms by which the clock of this process is ahead of the store's; None: not known yet."""
        return self._store_clock.offset

    async def next(self, *, claims: bool) -> TurnResult:
        """Settles and, if it may, claims. An outcome that cannot be stored fails its task, and the turn is repeated."""
        while True:
            try:
                return await self._settle_and_claim(claims)
            except StoreError:
                raise
            except Exception:
                if not await self._isolation.settle():  # no outcome is the cause
                    raise

    async def _settle_and_claim(self, claims: bool) -> TurnResult:
        """When the worker may not claim and nothing has ended, there is no call."""
        if self.runner.has_held():
            await asyncio.sleep(0)  # a coroutine that was due may only now begin to serve them
            self.runner.release_held()
        outcomes = self.outcomes.take()
        try:
            if self.reports.notes:  # after take(): a later note would follow its settled run and be refused
                await self.reports.flush()
            request = self._request() if claims and not self.slots.closed else None
            if request is None and not outcomes:
                return TurnResult(())
            return await self._send(outcomes, request)
        except BaseException:
            self.outcomes.put_back(outcomes)
            if self.handoff is not None:
                self.handoff.accept()
            raise

    def next_poll_in(self, now: float) -> float:
        """ms; turns that are no polls do not delay it, since a hint may have been lost."""
        return max(0.0, self._polled_at + self.config.poll_interval - now)

    def _request(self) -> ClaimRequest:
        now = self.clock.now()
        is_poll = self.next_poll_in(now) <= 0
        if is_poll:
            self._polled_at = now
        alarm_due = self.next_alarm is not None and now >= self.next_alarm
        pools = self.slots.pools(now, alarm_due=alarm_due, is_poll=is_poll)
        known = None if self.store.traits.shared else self.sources.known
        offer = None if self.handoff is None else self.handoff.offer()
        return ClaimRequest(self.session.claim_number + 1, pools, known_sources=known, offer=offer)

    async def _send(self, outcomes: Sequence[Entry], request: ClaimRequest | None) -> TurnResult:
        self.runner.forget_early_cancels()
        self.session.is_claiming = request is not None
        is_repeated = request is not None and request.number == self._sent_number
        if request is not None:
            self._sent_number = request.number
        sent = self.clock.now()
        try:
            turn = await self.store.turn(self.session.id, [outcome for outcome, _ in outcomes], request)
        finally:
            self.session.is_claiming = False
        if request is not None:
            self.session.claim_number = request.number
        now = self.clock.now()
        if now - sent > SLOW_TURN:
            self.observer.store_slow("turn", now - sent)
        claim = turn.claim
        if claim is not None:
            claimed_at = self._store_clock.observe(sent, claim.now, now)
            self.next_alarm = None
            if claim.next_in is not None:
                self.next_alarm = claimed_at + claim.next_in
            self.slots.mark_idle(claim.idle, claimed_at)
            self.slots.wake(claim.woken - claim.idle.keys())
        self.observer.tasks_settled(outcomes, turn.verdicts, now)
        if is_repeated:
            self.outcomes.settle_again(outcomes)
        if self.on_turn is not None:
            self.on_turn()
        return turn
