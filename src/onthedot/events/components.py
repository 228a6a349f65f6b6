"""The components of a process: what runs beside its worker, with one lifecycle for all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from onthedot.events.bus_connection import BusConnection


class Component(Protocol):
    """A part that runs beside the worker: the relay, a subscription, the callback service.

    `start` and `stop` return soon, whether or not store and bus answer. `ComponentLoop` implements all of it.
    """

    @property
    def name(self) -> str:
        """In log lines: "relay", "agent worldbuilder"."""
        ...

    @property
    def feeds_worker(self) -> bool:
        """It adds tasks or ends their waits, so it stops before the worker does."""
        ...

    @property
    def idle(self) -> asyncio.Event:
        """Set while there is nothing to do before the next hint or timer."""
        ...

    @property
    def event_count(self) -> int:
        """Events that it has sent, received or settled so far; a test looks again while it grows."""
        ...

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def recheck(self) -> None:
        """Clear `idle` and look again now."""
        ...


class Components:
    """Starts and stops the components of a process around its worker. connection: to the bus that they share."""

    def __init__(self, components: Sequence[Component], connection: BusConnection | None) -> None:
        self.all: Sequence[Component] = components
        self._connection = connection
        self._running: list[Component] = []

    async def start(self) -> None:
        for component in self.all:
            await component.start()
            self._running.append(component)

    async def add(self, component: Component) -> None:
        """Starts a further one."""
        self.all = (*self.all, component)
        await component.start()
        self._running.append(component)

    async def remove(self, component: Component) -> None:
        """Stops one before the others."""
        self.all = tuple(each for each in self.all if each is not component)
        await self._stop([each for each in self._running if each is component])

    async def stop_feeding(self) -> None:
        """Before the worker stops: it gets nothing more from these."""
        await self._stop([each for each in self._running if each.feeds_worker])

    async def stop(self) -> None:
        """After the worker has stopped: what its last tasks published is sent, if the bus answers."""
        await self._stop(list(self._running))
        if self._connection is not None:
            await self._connection.close()

    async def _stop(self, components: Sequence[Component]) -> None:
        self._running = [each for each in self._running if each not in components]
        await asyncio.gather(*(each.stop() for each in components))

    # -- for tests and --burst

    @property
    def event_count(self) -> int:
        """Events that all of them have moved."""
        return sum(each.event_count for each in self.all)

    async def run_until_idle(self) -> None:
        """Looks again and returns when nothing is left to do now."""
        before = -1
        while before != self.event_count:
            before = self.event_count
            for each in self.all:
                each.recheck()
            await asyncio.gather(*(each.idle.wait() for each in self.all))


NO_COMPONENTS = Components((), None)
