"""The journal of a task: notes that its run writes under its lease."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from onthedot.stores.contract.claims import Lease

NoteKind: TypeAlias = Literal["error", "progress", "step", "item"]


class Note(Struct, frozen=True, gc=False):
    """progress: the last one is kept. error (one per attempt), step and item: the first one is kept."""

    lease: Lease
    kind: NoteKind
    name: str
    data: bytes
