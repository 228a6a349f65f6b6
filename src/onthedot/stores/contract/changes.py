"""The change feed: the bounded log of state transitions. It is a view, never a queue."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from onthedot.stores.contract.tasks import State


class Transition(Struct, frozen=True, array_like=True, gc=False):
    """One change of state."""

    at: int  # ms
    uuid: str
    source: str
    state: State


class ChangeEntry(Struct, frozen=True):
    """The transitions of one call."""

    cursor: str  # where the next entry begins
    transitions: Sequence[Transition]


class ChangePage(Struct, frozen=True):
    """Entries in order."""

    entries: Sequence[ChangeEntry]
    cursor: str  # where the next page begins
