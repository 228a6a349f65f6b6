"""How long a call may read."""

from __future__ import annotations

import asyncio
from math import inf


class TimeLimit:
    """Seconds from now on. Without a number no event loop is needed: sync calls on memory have none."""

    def __init__(self, seconds: float = inf) -> None:
        self._loop = None if seconds == inf else asyncio.get_running_loop()
        self._end = inf if self._loop is None else self._loop.time() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is used up."""
        return self._loop is not None and self._loop.time() > self._end
