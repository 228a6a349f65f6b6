"""The bus of a process: opened once, for all components."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from onthedot.clock.protocol import Clock
from onthedot.clock.wakeup import WakeUp
from onthedot.engine.retry_delay import RetryDelay
from onthedot.events.bus import Bus, Revoked, Subscription
from onthedot.observability.events import Observer

_CLOSE = 1.0  # seconds; a bus that cannot be reached is abandoned


class BusConnection:
    """Opens a bus, again and again while it cannot be reached: a worker starts without it. shown: for people."""

    def __init__(self, bus: Bus, shown: str, clock: Clock, observer: Observer) -> None:
        self.bus = bus
        self.shown = shown
        self._clock = clock
        self._observer = observer
        self._opening: asyncio.Task[None] | None = None

    async def open(self) -> Bus:
        """The bus, when it is open. Several may wait; a caller that is cancelled does not end the opening."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        await asyncio.shield(self._opening)
        return self.bus

    async def _open(self) -> None:
        delay = RetryDelay()
        failed = False
        while True:
            try:
                await self.bus.open()
            except Exception as error:  # noqa: BLE001 - reported, and repeated
                failed = True
                self._observer.bus_failed("connecting", error)
                await WakeUp(self._clock).wait(delay.next())
            else:
                if failed:
                    self._observer.bus_recovered("connecting")
                return

    async def subscribe(self, group: str, topics: Sequence[str], on_revoked: Revoked, name: str) -> Subscription:
        """Joins a group, when the bus can be reached. name: of the component, for log lines."""
        bus = await self.open()
        delay = RetryDelay()
        failed = False
        while True:
            try:
                subscription = await bus.subscribe(group, topics, on_revoked)
            except Exception as error:  # noqa: BLE001 - reported, and repeated
                failed = True
                self._observer.bus_failed(f"subscribing the {name}", error)
                await WakeUp(self._clock).wait(delay.next())
            else:
                if failed:
                    self._observer.bus_recovered(f"subscribing the {name}")
                return subscription

    async def close(self) -> None:
        """Within a second, whether or not the bus answers."""
        opening = self._opening
        self._opening = None
        if opening is None:
            return
        opening.cancel()
        await asyncio.wait([opening])
        try:
            async with asyncio.timeout(_CLOSE):
                await self.bus.close()
        except Exception as error:  # noqa: BLE001 - reported; nothing depends on its end
            self._observer.bus_failed("disconnecting", error)
