"""Agents that an operator has frozen: their subscriptions receive nothing until they are thawed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from onthedot.clock.protocol import Clock
from onthedot.stores.contract import Limit

INTERVAL = 1_000.0  # ms for which an answer is used again


class FrozenAgents:
    """Reads the modes of sources for all subscriptions of a process, at most once per second."""

    def __init__(self, read_limits: Callable[[], Awaitable[Sequence[Limit]]], clock: Clock) -> None:
        self._read_limits = read_limits
        self._clock = clock
        self._read_at = -INTERVAL
        self._frozen: frozenset[str] = frozenset()

    async def includes(self, source: str) -> bool:
        """Whether a source is frozen, as it was at most one second ago."""
        now = self._clock.now()
        if now - self._read_at >= INTERVAL:
            limits = await self._read_limits()
            self._frozen = frozenset(limit.name for limit in limits if limit.mode == "frozen")
            self._read_at = now
        return source in self._frozen
