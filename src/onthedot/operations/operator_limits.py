"""The operator's records of limits: pauses, modes, caps and rates share one record per name."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from onthedot.errors import StoreBusy
from onthedot.model.stored_keys import stored_text
from onthedot.stores.contract import Limit, Store

_MAX_TRIES = 10  # of a compare-and-set


class OperatorLimits:
    """Reads them, and changes them field by field: what another operator sets at the same moment is kept."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, name: str) -> Limit:
        """The record of a name; one that sets nothing if there is none."""
        found = (each for each in await self._store.limits() if (each.name, each.owner) == (name, "operator"))
        return next(found, Limit(name, owner="operator"))

    async def change(self, name: str, change: Callable[[Limit], Limit]) -> Limit:
        """Store what `change` makes of the record; it is asked again if another change came first.

        Return the record before.
        """
        for _ in range(_MAX_TRIES):
            current = await self.get(name)
            if await self._store.put_limits([change(current)], replaces=[current]):
                return current
        raise StoreBusy(f"limit {name!r} was changed by others {_MAX_TRIES} times in a row; try again")


def paused_now(limit: Limit, reason: str, now: float) -> Limit:
    """The record with a pause; one that was paused before keeps the time of that."""
    since = limit.paused_since if limit.paused else int(now)
    return replace(limit, paused=True, reason=stored_text(reason), paused_since=since)


def not_paused(limit: Limit) -> Limit:
    """The record without its pause."""
    return replace(limit, paused=False, reason="", paused_since=None)
