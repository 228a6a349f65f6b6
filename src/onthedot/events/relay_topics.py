"""The topics that a relay sends to: their partitions, and when one that was not available is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from onthedot.clock.protocol import Clock
from onthedot.events.bus import Bus, BusUnreachable
from onthedot.observability.events import Observer

_FIRST_PAUSE = 1_000.0  # ms
_LONGEST_PAUSE = 60_000.0
_LONGEST_WITHOUT_BUS = 2_000.0  # so that events are sent soon after the bus is back
_JITTER = 0.1  # of a pause, at most: several relays do not ask at once
_KEEP_COUNT = 300_000.0  # ms: partitions can be added to a topic


@dataclass
class _Topic:
    count: int = 0  # of partitions; 0: not known
    counted_at: float = 0.0
    pause: float = _FIRST_PAUSE  # the next one
    retry_at: float = 0.0
    is_bus_unreachable: bool = False  # the last failure


class RelayTopics:
    """Looks partitions up outside of the relay's loop, since an unknown topic may take the bus a second.

    on_known, on_unavailable: called with the topic, on the event loop
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        random: Random,
        observer: Observer,
        on_known: Callable[[str], None],
        on_unavailable: Callable[[str], None],
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._random = random
        self._observer = observer
        self._on_known = on_known
        self._on_unavailable = on_unavailable
        self._topics: dict[str, _Topic] = {}
        self._lookups: dict[str, asyncio.Task[None]] = {}

    def partition_of(self, topic: str, key: bytes) -> int | None:
        """None: the number of partitions is looked up; `on_known` or `on_unavailable` follows."""
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = _Topic()
        if not known.count or self._clock.now() - known.counted_at > _KEEP_COUNT:
            self._look_up(topic)
        if not known.count:
            return None
        return self._bus.partition_of(key, known.count)

    def skipped(self) -> list[str]:
        """Topics of which no events shall be read now."""
        now = self._clock.now()
        waiting = [topic for topic, known in self._topics.items() if known.retry_at > now]
        return [*waiting, *(topic for topic in self._lookups if not self._topics[topic].count)]

    def is_bus_away(self) -> bool:
        """No broker answered for any topic; they are tried again now or later."""
        now = self._clock.now()
        return bool(self._topics) and all(
            known.is_bus_unreachable and (known.retry_at > now or topic in self._lookups)
            for topic, known in self._topics.items()
        )

    def next_retry(self) -> float | None:
        """ms until a topic is tried again."""
        now = self._clock.now()
        return min((known.retry_at - now for known in self._topics.values() if known.retry_at > now), default=None)

    def on_failed(self, topic: str, error: Exception) -> None:
        """A batch could not be sent, or the topic was not found."""
        known = self._topics.setdefault(topic, _Topic())
        self._on_unavailable(topic)
        if known.retry_at > self._clock.now():
            return  # another batch of it was first
        pause = known.pause * (1 + _JITTER * self._random.random())
        known.count = 0
        known.retry_at = self._clock.now() + pause
        known.pause = min(known.pause * 2, _LONGEST_PAUSE)
        known.is_bus_unreachable = isinstance(error, BusUnreachable)
        if known.is_bus_unreachable:
            known.pause = min(known.pause, _LONGEST_WITHOUT_BUS)
            self._observer.bus_failed(f"finding {topic}", error)
        else:
            self._observer.topic_unavailable(topic, pause / 1000, error)

    def on_sent(self, topic: str) -> None:
        known = self._topics[topic]
        known.pause = _FIRST_PAUSE

    def _look_up(self, topic: str) -> None:
        if topic not in self._lookups:
            self._lookups[topic] = asyncio.create_task(self._count(topic))

    async def _count(self, topic: str) -> None:
        try:
            count = await self._bus.partition_count(topic)
        except Exception as error:  # noqa: BLE001 - reported, and repeated after the pause
            del self._lookups[topic]
            if not self._topics[topic].count:
                self.on_failed(topic, error)
            return
        del self._lookups[topic]
        known = self._topics[topic]
        known.count = count
        known.counted_at = self._clock.now()
        known.is_bus_unreachable = False
        self._on_known(topic)

    async def close(self) -> None:
        lookups = list(self._lookups.values())
        self._lookups.clear()
        for lookup in lookups:
            lookup.cancel()
        if lookups:
            await asyncio.wait(lookups)
