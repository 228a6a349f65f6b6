"""The uuids of new tasks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count

from onthedot.forks import register_fork_hooks


class _Uuid7Generator:
    """Version 7: ordered by time, so that stores append; then random bits of this process, then a counter.

    The counter is last, so that the last ten characters identify a task: the command line shows only these. It starts
    at random. It is one atomic step, so threads need no lock.
    """

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Called in a fork, so that parent and child never create the same uuid."""
        random = int.from_bytes(os.urandom(5))
        self._process = f"7{random >> 22 & 0xFFF:03x}-{0x8000 | random >> 8 & 0x3FFF:04x}-{random & 0xFF:02x}"
        self._count = count(int.from_bytes(os.urandom(5)))
        self._last = (0, "")  # millisecond and its text in one object: another thread sees both or neither

    def next(self) -> str:
        now = time.time_ns() // 1_000_000
        last, head = self._last
        if now != last:
            ms = f"{now:012x}"
            head = f"{ms[:8]}-{ms[8:]}-{self._process}"
            self._last = (now, head)
        return f"{head}{next(self._count) & 0xFF_FFFF_FFFF:010x}"


_generator = _Uuid7Generator()
new_uuid: Callable[[], str] = _generator.next
register_fork_hooks(_generator)
