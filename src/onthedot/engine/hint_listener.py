"""Hints of the store: what may have changed since the last turn."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from onthedot.clock.protocol import Clock
from onthedot.clock.wakeup import WakeUp
from onthedot.engine.handoff import Handoff
from onthedot.engine.retry_delay import RetryDelay
from onthedot.engine.runner import Runner
from onthedot.engine.slots import Slots
from onthedot.observability.events import Observer
from onthedot.stores.contract import Hint, Store


async def listen(
    store: Store,
    session: str,
    receive: Callable[[Hint], None],
    clock: Clock,
    observer: Observer,
    on_failed: Callable[[], None] | None = None,
) -> None:
    """Passes the hints of a session on until it is cancelled. The first, and each after a failure, has `resync` set."""
    delay = RetryDelay()
    failed = False
    while True:
        try:
            async with aclosing(store.hints(session)) as hints:
                async for hint in hints:
                    receive(hint)
                    if hint.resync:  # it listens
                        delay.reset()
                    if hint.resync and failed:
                        failed = False
                        observer.store_recovered("listening for hints")
        except Exception as error:  # noqa: BLE001 - reported, and repeated
            failed = True
            observer.store_failed("listening for hints", error)
        if on_failed is not None:
            on_failed()
        await WakeUp(clock).wait(delay.next())


@dataclass(eq=False)
class HintListener:
    """Passes hints to slots, runner and hand-off. While it cannot listen, the poll interval is the fallback."""

    store: Store
    slots: Slots
    runner: Runner
    handoff: Handoff | None
    wakeup: WakeUp
    clock: Clock
    observer: Observer

    async def run(self, session: str) -> None:
        """Listens for a session until it is cancelled."""
        await listen(self.store, session, lambda hint: self.receive(hint), self.clock, self.observer)  # noqa: PLW0108 - tests replace it

    def receive(self, hint: Hint) -> None:
        for uuid, reason in hint.cancel_requests.items():
            self.runner.cancel(uuid, "cancel", reason)
        if hint.resync:
            self.slots.refresh()
        if hint.handoff is not None and self.handoff is not None:
            self.handoff.receive(hint.handoff)
            return
        self.slots.hint(hint.sources)
        if hint.recheck:
            self.slots.expect_end_of_wait()
        self.wakeup.set()
