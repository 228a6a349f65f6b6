"""Detects that a store has lost data: a failover to an empty server, a restored copy, a replaced file."""

from __future__ import annotations

from msgspec import Struct

from onthedot.stores.contract import StoreIdentity


class DataLoss(Struct, frozen=True):
    """The identity of a store as it was known, and as it is now."""

    before: StoreIdentity
    after: StoreIdentity

    @property
    def is_complete(self) -> bool:
        """It is another data set. Otherwise the store went back to an older state of the same."""
        return self.before.id != self.after.id


class KnownIdentity:
    """The identity of the store in the last claim. Its fence is the highest known, because fences only grow."""

    def __init__(self) -> None:
        self._last: StoreIdentity | None = None

    def observe(self, identity: StoreIdentity | None) -> DataLoss | None:
        """The loss since the last claim, if there was one; each is returned once."""
        before = self._last
        if identity is None:
            return None
        self._last = identity
        if before is None or (identity.id == before.id and identity.last_fence >= before.last_fence):
            return None
        return DataLoss(before, identity)
