"""Errors of the contract that callers of a store handle; users see their base class."""

from __future__ import annotations

from onthedot.errors import StoreUnavailable


class DeadlinePassed(StoreUnavailable):
    """An add reached the store after its caller had given up. Nothing was stored.

    Args:
        now: the store's time, in ms.
    """

    def __init__(self, now: float) -> None:
        super().__init__("the add reached the store too late, and was refused", stored=False)
        self.now = now
