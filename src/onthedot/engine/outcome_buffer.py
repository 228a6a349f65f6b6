"""Outcomes on their way to the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from onthedot.engine.run import Run
from onthedot.stores.contract import Outcome

Entry: TypeAlias = tuple[Outcome, Run | None]
"""An outcome, and its run if there was one."""


class OutcomeBuffer:
    """Outcomes of runs, chores and released tasks, in the order of their arrival, for the next turn."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self.add: Callable[[Entry], None] = self._entries.append  # called once per task

    def __len__(self) -> int:
        return len(self._entries)

    def take(self) -> Sequence[Entry]:
        entries = self._entries.copy()
        self._entries.clear()
        return entries

    def put_back(self, entries: Sequence[Entry]) -> None:
        """The store did not answer: these come first in the next turn."""
        self._entries[:0] = entries

    def settle_again(self, entries: Sequence[Entry]) -> None:
        """These were settled without a new claim number. They go into the next turn, which has one.

        An older state of the store that is restored may know the last number without these outcomes. A gap in the
        numbers shows that it lost the next one. Repeats are safe, since a lease settles once. The runs are left out:
        they have been reported.
        """
        self._entries[:0] = [(outcome, None) for outcome, _ in entries]
