"""Notes when a code release ran first, for charts."""

from __future__ import annotations

from onthedot.observability.events import Observer
from onthedot.stores.contract import SeriesEntry, Store

_MAX_READ = 1000  # entries, the newest first
_ROUNDED = 10_000  # ms: workers that start together write one entry


async def note_release(store: Store, release: str, observer: Observer) -> None:
    """Writes an entry, unless the series has one of this release. An error is reported and prevents no start."""
    if not release:
        return
    now = int(store.earliest_now())
    data = release.encode("utf-8", "replace")
    try:
        known = await store.read_series("releases", 0, now, _MAX_READ, newest_first=True)
        if all(entry.data != data for entry in known):
            at = now // _ROUNDED * _ROUNDED
            await store.write_series([SeriesEntry("releases", at, release, data)])
    except Exception as error:  # noqa: BLE001 - reported
        observer.store_failed("noting the code release", error)
