"""Pauses of the outbox: the limit records ``@outbox`` and ``@outbox/<topic>`` of an operator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

from onthedot.clock.protocol import Clock
from onthedot.model.outbox_names import OUTBOX_LIMIT, paused_topic
from onthedot.stores.contract import Limit

_INTERVAL = 1_000.0  # ms between two reads


class OutboxPauses:
    """Reads the pauses at most once per second, and only while there is something to send or something paused."""

    def __init__(self, read_limits: Callable[[], Awaitable[Sequence[Limit]]], clock: Clock) -> None:
        self._read_limits = read_limits
        self._clock = clock
        self._read_at = -_INTERVAL
        self.all: bool = False
        self.topics: Collection[str] = ()

    def covers(self, topic: str) -> bool:
        return self.all or topic in self.topics

    def __bool__(self) -> bool:
        return self.all or bool(self.topics)

    def expire(self) -> None:
        """The next `update` reads, however short ago the last one was."""
        self._read_at = -_INTERVAL

    async def update(self) -> None:
        now = self._clock.now()
        if now - self._read_at < _INTERVAL:
            return
        paused = [limit.name for limit in await self._read_limits() if limit.paused]
        self._read_at = now
        self.all = OUTBOX_LIMIT in paused
        self.topics = [topic for name in paused if (topic := paused_topic(name)) is not None]
