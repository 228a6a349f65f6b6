"""The journal of a task: notes that its run writes under its lease."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from onthedot.stores.contract.claims import Lease


class Note(Struct, frozen=True, gc=False):
    """progress: the last one is kept. error, one per attempt: the first one is kept."""

    lease: Lease
    kind: Literal["error", "progress"]
    name: str
    data: bytes
