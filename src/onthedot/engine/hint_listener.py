"""Hints of the store: what may have changed since the last turn."""

from __future__ import annotations

from contextlib import aclosing

from onthedot.clock.protocol import Clock
from onthedot.clock.wakeup import WakeUp
from onthedot.engine.handoff import Handoff
from onthedot.engine.retry_delay import RetryDelay
from onthedot.engine.runner import Runner
from onthedot.engine.session import WorkerSession
from onthedot.engine.slots import Slots
from onthedot.observability.events import Observer
from onthedot.stores.contract import Hint, Store


class HintListener:
    """Passes hints to slots, runner and hand-off. While it cannot listen, the poll interval is the fallback."""

    def __init__(
        self,
        store: Store,
        session: WorkerSession,
        slots: Slots,
        runner: Runner,
        handoff: Handoff | None,
        wakeup: WakeUp,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._store = store
        self._session = session
        self._slots = slots
        self._runner = runner
        self._handoff = handoff
        self._wakeup = wakeup
        self._clock = clock
        self._observer = observer

    async def run(self) -> None:
        """Listens until it is cancelled, for the session of this moment."""
        delay = RetryDelay()
        while True:
            try:
                async with aclosing(self._store.hints(self._session.id)) as hints:
                    async for hint in hints:
                        self.receive(hint)
                        delay.reset()
            except Exception as error:  # noqa: BLE001 - reported, and repeated
                self._observer.store_failed("listening for hints", error)
            await WakeUp(self._clock).wait(delay.next())

    def receive(self, hint: Hint) -> None:
        for uuid, reason in hint.cancel_requests.items():
            self._runner.cancel(uuid, "cancel", reason)
        if hint.resync:
            self._slots.refresh()
        if hint.handoff is not None and self._handoff is not None:
            self._handoff.receive(hint.handoff)
            return
        self._slots.hint(hint.sources)
        self._wakeup.set()
