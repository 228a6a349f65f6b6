"""The apps of a store that have something in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from onthedot.clock.system import SystemClock
from onthedot.stores import connect
from onthedot.stores.schemes import apps_in


async def apps_of(url: str) -> list[str]:
    """Return the apps of a store that have tasks, schedules or a live worker."""
    return await present_apps(url, await asyncio.to_thread(apps_in, url))


async def present_apps(url: str, names: Iterable[str]) -> list[str]:
    """Return those of these apps that have tasks, schedules or a live worker."""
    return [name for name in names if await _is_present(url, name)]


async def _is_present(url: str, name: str) -> bool:
    store = connect(url, SystemClock(), name)
    await store.open()
    try:
        return any((await store.tally()).values()) or bool(await store.schedules() or await store.sessions())
    finally:
        await store.close()
