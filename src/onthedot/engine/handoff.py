"""Hand-off: the store leases new tasks to this idle worker in the call that adds them (ADR 15)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onthedot.clock.wakeup import WakeUp
from onthedot.definitions.sources import Sources
from onthedot.engine.config import WorkerConfig
from onthedot.engine.heartbeat import FOREVER
from onthedot.engine.outcome_buffer import OutcomeBuffer
from onthedot.engine.runner import Runner
from onthedot.engine.session import WorkerSession
from onthedot.engine.slots import Slots
from onthedot.stores.capabilities import HasHandoff
from onthedot.stores.contract import HandoffMessage, HandoffOffer, Lease, LeasedTasks, Requeued

_MAX_VALID = 15_000.0  # ms


@dataclass(eq=False)
class Handoff:
    """Offers the free slots of an idle worker, and starts the tasks that arrive for an offer."""

    config: WorkerConfig
    store: HasHandoff
    sources: Sources
    session: WorkerSession
    slots: Slots
    runner: Runner
    outcomes: OutcomeBuffer
    wakeup: WakeUp
    start: Callable[[LeasedTasks], None]

    def __post_init__(self) -> None:
        self._max_sources = self.store.max_handoff_sources
        self._message: HandoffMessage | None = None
        lease = self.config.lease_ms or FOREVER
        self._valid_ms = min(self.config.poll_interval, lease / 2, _MAX_VALID)

    @property
    def is_pending(self) -> bool:
        """Tasks have arrived while a claim is in flight."""
        return self._message is not None

    def offer(self) -> HandoffOffer | None:
        """Capacity by source, if the worker is idle.

        A worker that runs a task may be too busy to notice a message while other workers wait. An offer is
        valid for a time; the next poll renews it.
        """
        if len(self.sources.known) > self._max_sources or self.runner.is_busy():
            return None
        return HandoffOffer(self.slots.offer(), self._valid_ms)

    def receive(self, message: HandoffMessage) -> None:
        self._message = message
        self.accept()

    def accept(self) -> None:
        """Starts the tasks of the message that has arrived.

        While a claim is in flight they wait: its answer contains the same tasks.

        Tasks for an earlier claim were delivered before, or come from a server that has lost its last writes. Nobody
        else would end them, so they are requeued unless they run here. A fenced worker starts nothing, because other
        workers may have the tasks by now.
        """
        message = self._message
        if message is None or self.session.is_claiming:
            return
        self._message = None
        if message.number == self.session.claim_number + 1 and not self.session.is_fenced():
            self.session.claim_number = message.number
            self.start(message.leased)
            if self.outcomes:  # a source is gone, or the worker stops: these tasks are requeued
                self.wakeup.set()
        elif message.number <= self.session.claim_number:
            self._release(message.leased)
        else:
            self.wakeup.set()

    def _release(self, leased: LeasedTasks) -> None:
        for record in leased.tasks:
            lease = Lease(record.uuid, leased.fence, self.session.id)
            if not self.runner.holds(lease):
                self.outcomes.add((Requeued(lease, None, counted=False), None))
                self.wakeup.set()

    def discard(self) -> None:
        """The session is replaced: a message for the old one is void."""
        self._message = None
