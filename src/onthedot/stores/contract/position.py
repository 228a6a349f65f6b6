"""The position of a pending task: what is before it, and what blocks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from onthedot.stores.contract.limits import Limit

MAX_AHEAD = 100_000  # the most tasks that position() counts


class Blocker(Struct, frozen=True):
    """A limit that stops a pending task now: its source's own, or its lane's."""

    limit: Limit  # effective: code's, the operator's and the star's merged; `owner` has no meaning
    reason: Literal["paused", "cap", "rate"]
    running: int = 0  # tasks running under it; tasks that its lane has admitted to ready are not counted
    opens_in: float | None = None  # rate: ms until it admits this task, as the next; None: time alone does not help


class Position(Struct, frozen=True):
    """By the rules of the claim; a task that is not due yet is judged as if it were."""

    blockers: Sequence[Blocker]  # the source's first, then the lane's; empty: only the order decides
    ahead: int  # tasks before it by (rank, seq): ready ones of its source; for a parked task, those parked in its lane
