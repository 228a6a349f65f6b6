"""Modes of sources, which operators set: frozen (no new tasks) and degraded (batches in one part)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Literal, TypeAlias

from msgspec.structs import replace

from onthedot.clock.protocol import Clock
from onthedot.errors import ArgumentError, SourceFrozen, StoreError
from onthedot.model.agent_names import agent_of
from onthedot.model.batch_names import batch_task
from onthedot.operations.audit import Recorded
from onthedot.operations.humanize import plural
from onthedot.operations.operator_limits import OperatorLimits
from onthedot.stores.contract import LIVE, Limit, NewTask, Store

Mode: TypeAlias = Literal["", "frozen", "degraded"]
Count: TypeAlias = Callable[[], Awaitable[int]]  # how much is left
MODE_AGE = 1000  # ms for which adders use modes without reading them again
RETRY_AFTER = 30.0  # seconds that the caller of a refused add shall wait
LOOK_INTERVAL = 0.1  # seconds between two looks at a source that drains
_READ_TIMEOUT = 1.0  # seconds
_AGENT_QUIET = 2.0  # seconds; a subscription notes the end of a task within 1 s, and then adds the next of its key
_SOURCE = re.compile(r"[A-Za-z0-9_.:-]{1,200}")


class RecentModes:
    """The modes of all sources as they were at most one second ago, for those who add tasks.

    While they cannot be read, the last known ones hold: the add that follows reports the outage itself.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._modes: Mapping[str, Mode] = {}  # by source
        self._frozen: frozenset[str] = frozenset()
        self._read_at = -inf
        self._reading: asyncio.Task[None] | None = None

    def accept_all(self) -> bool:
        """Whether it is known, without reading, that no source is frozen."""
        return not self._frozen and self._clock.now() - self._read_at < MODE_AGE

    async def of(self, source: str) -> Mode:
        """The mode of a source."""
        await self._refresh()
        return self._modes.get(source, "")

    async def check(self, tasks: Iterable[NewTask]) -> None:
        """Raises SourceFrozen if one of the tasks is of a frozen source."""
        await self._refresh()
        check_accepted(self._frozen, tasks)

    def forget(self) -> None:
        """The next caller reads the modes: this process has changed one."""
        self._read_at = -inf

    async def _refresh(self) -> None:
        if self._clock.now() - self._read_at < MODE_AGE:
            return
        if self._store.traits.synchronous:
            self._keep(await self._store.limits())
            return
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        await asyncio.shield(self._reading)  # all callers wait for one read; one that is cancelled leaves it to them

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(_READ_TIMEOUT):
                self._keep(await self._store.limits())
        except (StoreError, TimeoutError):
            self._read_at = self._clock.now()
        finally:
            self._reading = None

    def _keep(self, limits: Sequence[Limit]) -> None:
        self._modes = {limit.name: limit.mode for limit in limits if limit.mode and limit.owner == "operator"}
        self._frozen = frozen_sources(limits)
        self._read_at = self._clock.now()


class ModeOperations(Recorded):
    """Reads and changes the modes of sources; `recent` is what adders go by."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._limits = OperatorLimits(store)
        self.recent: RecentModes = RecentModes(store, clock)

    async def of(self, source: str) -> Mode:
        """Return the mode of a source, as it is now."""
        return (await self._limits.get(source)).mode

    async def set(self, source: str, mode: Mode) -> Mode:
        """Change a mode. Return the one before, which this replaces."""
        before = await self._limits.change(source, lambda limit: replace(limit, mode=mode))
        self.recent.forget()
        return before.mode

    async def end(self, source: str, mode: Mode) -> bool:
        """End a mode. Return whether the source had it."""
        if (await self._limits.get(source)).mode != mode:
            return False

        def ended(limit: Limit) -> Limit:
            return replace(limit, mode="") if limit.mode == mode else limit

        before = await self._limits.change(source, ended)
        self.recent.forget()
        return before.mode == mode

    async def freeze(self, source: str) -> bool:
        """Accept no new tasks of a source. Return whether it was frozen before."""
        async with self._recorder.change("freeze", _checked(source)) as note:
            was_frozen = await self.set(source, "frozen") == "frozen"
            note.changed = int(not was_frozen)
        return was_frozen

    async def thaw(self, source: str) -> bool:
        """Accept tasks of a source again. Return whether it was frozen."""
        async with self._recorder.change("thaw", _checked(source)) as note:
            was_frozen = await self.end(source, "frozen")
            note.changed = int(was_frozen)
        return was_frozen

    async def drain(self, source: str, timeout: float | None, unsent: Count, lag: Count | None = None) -> None:
        """Freeze a source, then wait until all its tasks have ended and nothing is unsent. Raises TimeoutError.

        lag: of an agent on the bus. A frozen agent receives nothing, so it handles what is there before.
        """
        _checked(source)

        async def left() -> int:
            return await self.live(source) + await unsent()

        def text(count: int) -> str:
            return f"{source}: {plural(count, 'task or event is', 'tasks or events are')} left"

        quiet = 0.0 if agent_of(source) is None else _AGENT_QUIET
        async with self._recorder.change("drain", source) as note:
            if lag is not None:
                timeout = await _wait_for_bus(source, timeout, unsent, lag)
            await self.set(source, "frozen")
            note.changed = 1
            await wait_until_drained(left, timeout, text, quiet=quiet)

    async def live(self, source: str) -> int:
        """Return how many tasks of a source have not ended."""
        tally = await self._store.tally()
        return sum(tally.get((source, state), 0) for state in LIVE)


def _checked(source: str) -> str:
    if not isinstance(source, str) or not _SOURCE.fullmatch(source):
        raise ArgumentError(f"{source!r} names no source: letters, digits and _.:- are allowed")
    return source


def frozen_sources(limits: Iterable[Limit]) -> frozenset[str]:
    """The sources that accept no new tasks."""
    return frozenset(limit.name for limit in limits if limit.mode == "frozen" and limit.owner == "operator")


def check_accepted(frozen: frozenset[str], tasks: Iterable[NewTask]) -> None:
    """Raises SourceFrozen if one of the tasks is of a frozen source."""
    if not frozen:
        return
    for task in tasks:
        if task.source in frozen:
            batches_of = batch_task(task.source)
            if batches_of is not None:
                raise SourceFrozen(batches_of, RETRY_AFTER, "batches")
            raise SourceFrozen(task.source, RETRY_AFTER)


async def _wait_for_bus(source: str, timeout: float | None, unsent: Count, lag: Count) -> float | None:
    """Waits until an agent has handled all events on the bus. Returns the rest of the timeout. Raises TimeoutError."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def left() -> int:
        return await unsent() + await lag()  # in this order: an event that is sent meanwhile is in the lag

    found = await left()
    try:
        async with asyncio.timeout(timeout):
            while found:
                await asyncio.sleep(LOOK_INTERVAL)
                found = await left()
    except TimeoutError:
        if timeout is None:  # one of the reader
            raise
        events = plural(found, "event is", "events are")
        raise TimeoutError(f"{source}: {events} not handled after {timeout:g} s; it is not frozen") from None
    return None if timeout is None else max(0.0, timeout - (loop.time() - began))


async def wait_until_drained(
    count: Count, timeout: float | None, left: Callable[[int], str], *, quiet: float = 0.0
) -> None:
    """Waits until nothing is left of what was accepted before a freeze, for `quiet` seconds. Raises TimeoutError.

    left: the begin of its text
    """
    found = 0
    loop = asyncio.get_running_loop()
    try:
        await asyncio.sleep(MODE_AGE / 1000)  # until then others may still add
        async with asyncio.timeout(timeout):
            empty_since = loop.time()
            while (found := await count()) or loop.time() - empty_since < quiet:
                if found:
                    empty_since = loop.time()
                await asyncio.sleep(LOOK_INTERVAL)
    except TimeoutError:
        found = found or await count()
        raise TimeoutError(
            f"{left(found)} after {timeout:g} s; it stays frozen, so that you can drain it again, or thaw it"
        ) from None
