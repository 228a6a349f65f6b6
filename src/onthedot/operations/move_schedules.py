"""Move schedules to another store, so that every window fires in one of the stores.

Each step is a compare-and-set: 1. copy it to the target, paused and marked as incoming; 2. remove the next time here;
3. activate the copy with the pause that it had here; 4. pause it here. A schedule that is neither paused nor has a next
time is between steps 2 and 4. An incoming copy is not active yet, and is not moved on.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from onthedot.stores.contract import Schedule, Store


class MovedSchedules(NamedTuple):
    """moved: names of those that are active in the target now; incoming: of those that are not active here yet."""

    moved: list[str]
    incoming: list[str]


async def move_schedules(source: Store, target: Store, *, release: bool = False) -> MovedSchedules:
    """release: activate the copies that an unfinished move has left here, and move them."""
    if release:
        for schedule in await source.schedules():
            await _activate(source, schedule.name, paused=False)
    schedules = await source.schedules()
    incoming = [each.name for each in schedules if each.incoming]
    moved = [each.name for each in schedules if not each.incoming and await _move(source, target, each.name)]
    return MovedSchedules(moved, incoming)


async def _move(source: Store, target: Store, name: str) -> bool:
    while (here := await _get(source, name)) is not None:
        if here.next_at is None and here.paused:
            return False  # it was moved before, or will never fire
        there = await _get(target, name)
        if here.next_at is not None or there is None:  # else step 2 is done
            await _copy(target, here, there)
            if not await _put(source, replace(here, next_at=None)):
                continue  # it has fired meanwhile
        await _activate(target, name, paused=here.paused)
        await _pause(source, name)
        return True
    return False


async def _copy(target: Store, here: Schedule, there: Schedule | None) -> None:
    """Step 1. A schedule that is in the target already continues from the later of both states."""
    while there is None or not await _put(target, _merged(here, there)):
        if there is None:  # a worker may declare it at this moment, and then it is not paused
            await _put(target, replace(here, rev=0, paused=True, incoming=True))
        there = await _get(target, here.name)


def _merged(here: Schedule, there: Schedule) -> Schedule:
    runs = max(here.runs, there.runs)
    if there.paused and there.next_at is None:  # it was moved away from there once, so the one here is newer
        return replace(here, rev=there.rev, paused=True, incoming=True, runs=runs)
    if there.rule != here.rule:  # another rule of the same name: the target's stays
        return replace(there, paused=True, incoming=True)
    next_at = _later(here.next_at, there.next_at)
    last_at = _later(here.last_at, there.last_at)
    return replace(there, paused=True, incoming=True, next_at=next_at, last_at=last_at, runs=runs)


def _later(one: int | None, other: int | None) -> int | None:
    return max((moment for moment in (one, other) if moment is not None), default=None)


async def _activate(store: Store, name: str, *, paused: bool) -> None:
    """Step 3. A copy that is active already is left alone: an operator may have paused it since."""
    while (found := await _get(store, name)) is not None and found.incoming:
        if await _put(store, replace(found, paused=paused, incoming=False)):
            return


async def _pause(store: Store, name: str) -> None:
    """Step 4, unless it was moved back meanwhile: then it has a next time."""
    while (found := await _get(store, name)) is not None and not found.paused and found.next_at is None:
        if await _put(store, replace(found, paused=True)):
            return


async def _put(store: Store, schedule: Schedule) -> bool:
    (accepted,) = await store.put_schedules([schedule])
    return accepted


async def _get(store: Store, name: str) -> Schedule | None:
    return next((schedule for schedule in await store.schedules() if schedule.name == name), None)
