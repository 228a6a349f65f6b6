"""How many tasks one claim takes from the pool of async functions."""

from __future__ import annotations

LEAST_SLOTS = 32  # with fewer, no task is claimed ahead: few slots are chosen for heavy tasks
MOST_PER_SLOT = 4
MOST_TASKS = 400  # a claim of more tasks gains little
SHORT_CYCLE = 30.0  # ms from one claim request to the next, with the runs between them


class ClaimSize:
    """Takes more tasks than there are slots while all of them end before the next turn: a turn has a price of its own.

    A claim takes twice as many as the one before if that was filled, if no task runs any more, and if the cycle was
    short. Otherwise it takes as many as there are slots.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._most = max(slots, min(slots * MOST_PER_SLOT, MOST_TASKS)) if slots >= LEAST_SLOTS else slots
        self._size = slots
        self._taken = 0  # since the last request
        self._requested_at: float | None = None

    def add_taken(self, number: int) -> None:
        self._taken += number

    def next(self, busy: int, now: float) -> int:
        """Of the claim that is requested now, while `busy` tasks run."""
        is_filled = self._taken >= self._size
        is_short = self._requested_at is not None and now - self._requested_at <= SHORT_CYCLE
        if busy == 0 and is_filled and is_short:
            self._size = min(self._size * 2, self._most)
        else:
            self._size = self._slots
        self._taken = 0
        self._requested_at = now
        return self._size - busy
