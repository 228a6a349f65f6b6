"""Code releases: when each of them ran first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from onthedot.clock.epoch import from_ms
from onthedot.operations.figure_records import read_all
from onthedot.stores.contract import Store


@dataclass(frozen=True, slots=True)
class ReleaseInfo:
    """A version of the user's code. at: the first start of a worker that runs it, to ten seconds."""

    name: str
    at: datetime


async def read_releases(store: Store, since: int, until: int) -> list[ReleaseInfo]:
    """Those that ran first in this span, in ms; the oldest first."""
    first: dict[str, int] = {}
    for entry in await read_all(store, "releases", since, until):
        first.setdefault(entry.data.decode("utf-8", "replace"), entry.at)
    return [ReleaseInfo(name, from_ms(at)) for name, at in first.items()]
