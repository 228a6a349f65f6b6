"""The server's time, as far as this process knows it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast


class ServerClock:
    """Never ahead of the server: the last time received, plus the time since then."""

    def __init__(self) -> None:
        self._now = 0.0
        self._received = 0.0

    def set(self, now: float) -> None:
        """now: of a reply that has just come, in ms."""
        self._now = now
        self._received = time.monotonic()

    def set_by_reply(self, reply: object) -> None:
        """Of TIME. An error, as of a server that forbids it, changes nothing."""
        if isinstance(reply, list | tuple):
            seconds, microseconds = cast("Sequence[bytes]", reply)
            self.set(int(seconds) * 1000 + int(microseconds) / 1000)

    def earliest_now(self) -> float:
        return self._now + (time.monotonic() - self._received) * 1000
