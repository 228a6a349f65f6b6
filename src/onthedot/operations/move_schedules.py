"""Moving schedules to another store, so that every window fires in one of them.

For each, by compare-and-set, in this order: laid there, paused; here without a next time; there as it was here; here
paused. A schedule without a next time that is not paused is on its way. One that is only laid counts its runs below
zero: so its pause is not taken for an operator's, and it is not given on.
"""

from __future__ import annotations

from msgspec.structs import replace

from onthedot.stores.contract import Schedule, Store


async def move_schedules(source: Store, target: Store, *, release: bool = False) -> tuple[list[str], list[str]]:
    """Answers with the names of those that are there from now on, and of those that were only laid here."""
    for schedule in await _all(source) if release else ():
        await _take(source, schedule.name, paused=False)
    every = await _all(source)
    laid = [schedule.name for schedule in every if schedule.runs < 0]
    moved = [each.name for each in every if each.name not in laid and await _move(source, target, each.name)]
    return moved, laid


async def _move(source: Store, target: Store, name: str) -> bool:
    while (here := await _get(source, name)) is not None:
        if here.next_at is None and here.paused:
            return False  # it was moved before, or will never fire
        there = await _get(target, name)
        if here.next_at is not None or there is None:  # else it has lost its next time to the one there
            await _lay(target, here, there)
            if not await _put(source, replace(here, next_at=None)):
                continue  # it has fired meanwhile
        await _take(target, name, paused=here.paused)
        await _pause(source, name)
        return True
    return False


async def _lay(target: Store, here: Schedule, there: Schedule | None) -> None:
    """There, but paused. One that is there already goes on from where either of them has come to."""
    while there is None or not await _laid(target, here, there):
        if there is None:  # somebody may declare it in this very moment, and then it is not paused
            await _put(target, replace(here, rev=0, paused=True, runs=_below(here.runs)))
        there = await _get(target, here.name)


async def _laid(target: Store, here: Schedule, there: Schedule) -> bool:
    runs = _below(max(here.runs, _counted(there.runs)))
    if there.paused and there.next_at is None:  # it was moved away from there once: what comes back is newer
        return await _put(target, replace(here, rev=there.rev, paused=True, runs=runs))
    if there.rule != here.rule:  # another rule under the same name: that of its own store stands
        return await _put(target, replace(there, paused=True, runs=_below(_counted(there.runs))))
    next_at, last_at = _later(here.next_at, there.next_at), _later(here.last_at, there.last_at)
    return await _put(target, replace(there, paused=True, next_at=next_at, last_at=last_at, runs=runs))


def _below(runs: int) -> int:
    return -1 - runs


def _counted(runs: int) -> int:
    return runs if runs >= 0 else _below(runs)


def _later(one: int | None, other: int | None) -> int | None:
    return max((moment for moment in (one, other) if moment is not None), default=None)


async def _take(store: Store, name: str, *, paused: bool) -> None:
    """What is laid there is that store's from now on. If it is that already, an operator may have paused it since."""
    while (found := await _get(store, name)) is not None and found.runs < 0:
        if await _put(store, replace(found, paused=paused, runs=_counted(found.runs))):
            return


async def _pause(store: Store, name: str) -> None:
    """Unless it has come back meanwhile: then it has a next time."""
    while (found := await _get(store, name)) is not None and not found.paused and found.next_at is None:
        if await _put(store, replace(found, paused=True)):
            return


async def _put(store: Store, schedule: Schedule) -> bool:
    (stood,) = await store.put_schedules([schedule])
    return stood


async def _all(store: Store) -> list[Schedule]:
    return list(await store.schedules())


async def _get(store: Store, name: str) -> Schedule | None:
    return next((schedule for schedule in await _all(store) if schedule.name == name), None)
