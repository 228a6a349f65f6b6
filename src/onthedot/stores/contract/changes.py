"""The change feed: the bounded log of state transitions. It is a view, never a queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from onthedot.stores.contract.tasks import State

MAX_TRANSITIONS = 100_000
"""The log keeps at least the calls of this many newest transitions, and drops older ones."""


class Transition(Struct, frozen=True, array_like=True, gc=False):
    """One change of state."""

    at: int  # ms
    uuid: str
    source: str
    state: State


class ChangeEntry(Struct, frozen=True):
    """The transitions of one call: all of them as counts, some of them with the uuid of their task."""

    at: int  # ms
    counts: Mapping[str, Mapping[State, int]]  # by source and new state
    transitions: Sequence[Transition] = ()


class ChangePage(Struct, frozen=True):
    """Entries in order. A reader that continues at the cursor of each page sees every entry once."""

    entries: Sequence[ChangeEntry]
    cursor: str  # where the next page begins; opaque
    gap: bool = False  # entries after the cursor of the request are lost: the log is bounded, or it is of other data
