"""The pause before a process is started again."""

from __future__ import annotations

_FIRST = 0.1  # seconds
_LONGEST = 30.0
_LONGEST_KILLED = 1.0
_MIN_LIFETIME = 10.0  # seconds; a process that lived longer is no part of a loop


class RestartPause:
    """Doubles for processes that die young: code that cannot run is not started again and again.

    Code that has been ready once can run. If its process is killed by a signal (`kill -9`, the OOM killer, a
    segmentation fault), the next one starts soon: a task that kills its process fails after `max_crashes`, and other
    tasks need not wait for it.

    >>> pause = RestartPause()
    >>> [pause.next(lifetime=0.5, was_killed=False) for _ in range(4)]
    [0.1, 0.2, 0.4, 0.8]
    """

    def __init__(self) -> None:
        self._next = _FIRST

    def next(self, lifetime: float, *, was_killed: bool) -> float:
        """Seconds. lifetime: of the dead process, in seconds; was_killed: by a signal, and its code can run."""
        if lifetime > _MIN_LIFETIME:
            self._next = _FIRST
        pause = self._next
        if was_killed:
            pause = min(pause, _LONGEST_KILLED)
        self._next = min(pause * 2, _LONGEST)
        return pause
