"""The uuids of new tasks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count

from onthedot.forks import register_fork_hooks


class _Uuid7Generator:
    """Version 7: ordered by time, so that stores append; then a counter, then random bits of this process.

    The counter is one atomic step, so threads need no lock.
    """

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Called in a fork, so that parent and child never create the same uuid."""
        self._tail = os.urandom(6).hex()
        self._count = count(int.from_bytes(os.urandom(3)))
        self._last = (0, "")  # millisecond and its text in one object: another thread sees both or neither

    def next(self) -> str:
        now = time.time_ns() // 1_000_000
        last, head = self._last
        if now != last:
            ms = f"{now:012x}"
            head = f"{ms[:8]}-{ms[8:]}-7"
            self._last = (now, head)
        number = next(self._count)
        return f"{head}{number >> 14 & 0xFFF:03x}-{0x8000 | number & 0x3FFF:04x}-{self._tail}"


_generator = _Uuid7Generator()
new_uuid: Callable[[], str] = _generator.next
register_fork_hooks(_generator)
