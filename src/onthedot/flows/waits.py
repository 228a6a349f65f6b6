"""Sleeps and waits for signals: their deadlines are saved, and the run ends until they are over."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil
from typing import Any

from msgspec import Struct

from onthedot.clock.durations import Duration, to_duration_ms
from onthedot.clock.epoch import from_ms
from onthedot.engine.repeated_calls import RepeatedCalls
from onthedot.engine.suspension import Suspension
from onthedot.flows.journal import StepJournal, StepRequest
from onthedot.flows.signals import check_signal_name, decode_payload
from onthedot.model.context import RunState
from onthedot.model.counter_names import own_signal, shared_signal, signal_name
from onthedot.model.saved_steps import (
    SLEEP,
    WAIT,
    SavedSleep,
    SavedUntil,
    TakenSignal,
    from_raw,
    read_value,
    saved_value,
    to_raw,
    until_key,
)
from onthedot.model.signals import Signal
from onthedot.model.value_errors import InvalidOption, SettingError
from onthedot.stores.contract import MAX_WAIT_COUNTERS, Requeued, Store, StoredSignal, Suspended, Wait

_MAX_NAMES = MAX_WAIT_COUNTERS // 2  # a shared and an own counter each


class Waits:
    """The sleeps and waits of one run. Only one is in progress at a time."""

    def __init__(self, run: RunState, journal: StepJournal, store: Store, calls: RepeatedCalls) -> None:
        self._run = run
        self._journal = journal
        self._store = store
        self._calls = calls

    def _now(self) -> float:
        """The time of the store is not before this."""
        return max(self._store.earliest_now(), self._run.record.due)

    # -- sleep

    async def sleep(self, duration: Duration) -> None:
        ms = to_duration_ms(duration, "ctx.sleep()", SettingError)
        request = self._journal.request(SLEEP)
        await self._journal.load()
        saved = self._journal.find(request)
        if saved is None:
            until = ceil(self._now() + ms)
            await self._save(request.key, request, SavedSleep(until))
        else:
            until = read_value(saved, SavedSleep).until
        left = until - self._now()
        if left > 0:
            raise Suspension(Requeued(self._run.lease, ceil(left), counted=False, reset_crashes=True))

    # -- signals

    async def wait_any(self, names: Sequence[str], timeout: Duration | None, kind: Any) -> Signal:
        if not 1 <= len(names) <= _MAX_NAMES:
            raise InvalidOption(f"ctx.wait_any() takes 1 to {_MAX_NAMES} names, not {len(names)}")
        for name in names:
            check_signal_name(name)
        ms: int | None = None
        if timeout is not None:
            ms = to_duration_ms(timeout, "the timeout of a wait", SettingError)
        request = self._journal.request(f"{WAIT}{'|'.join(names)}")
        await self._journal.load()
        saved = self._journal.find(request)
        if saved is None:
            taken = await self._take(request, names, ms)
        else:
            taken = read_value(saved, TakenSignal)
        if not taken.counter:
            shown = " or ".join(f'"{name}"' for name in names)
            raise TimeoutError(f"no signal {shown} came in time")
        name = signal_name(taken.counter) or ""
        return Signal(name, decode_payload(name, from_raw(taken.payload), kind), from_ms(taken.number))

    async def _take(self, request: StepRequest, names: Sequence[str], timeout: int | None) -> TakenSignal:
        """The first signal that this task has not taken, or the end of the time. Otherwise the run ends here."""
        wait, taken = await self._look(names)
        if taken is None:
            deadline = await self._deadline(request, timeout)
            if deadline is None or deadline > self._now():
                left = None if deadline is None else ceil(deadline - self._now())
                raise Suspension(Suspended(self._run.lease, Wait(wait, left)))
            taken = TakenSignal()
        await self._save(request.key, request, taken)
        return taken

    async def _look(self, names: Sequence[str]) -> tuple[tuple[tuple[str, int], ...], TakenSignal | None]:
        """The counters to wait for, and the signal with the lowest number that is there already."""
        last: dict[str, int] = {}
        for each in self._journal.saved_waits():
            before = read_value(each, TakenSignal)
            last[before.counter] = max(last.get(before.counter, 0), before.number)
        uuid = self._run.record.uuid
        counters = [counter for name in names for counter in (shared_signal(name), own_signal(uuid, name))]
        wait: list[tuple[str, int]] = []
        found: list[tuple[int, str, TakenSignal]] = []
        for counter in dict.fromkeys(counters):
            page = await self._calls.run(partial(self._store.signals, counter, last.get(counter, 0), 1))
            wait.append((counter, page.value + 1))
            # The number is a time in ms. Ids that a process makes grow, so they order the signals of one millisecond.
            found += [(each.number, each.id, _taken(counter, each)) for each in page.signals]
        if not found:
            return tuple(wait), None
        return tuple(wait), min(found, key=lambda each: each[:2])[2]

    async def _deadline(self, request: StepRequest, timeout: int | None) -> int | None:
        key = until_key(request.key)
        saved = self._journal.peek(key)
        if saved is not None:
            return read_value(saved, SavedUntil).until
        now = self._now()
        until = None if timeout is None else ceil(now + timeout)
        await self._save(key, request, SavedUntil(int(now), until))
        return until

    async def _save(self, key: str, request: StepRequest, value: Struct) -> None:
        await self._journal.save(key, saved_value(request.position, value))


def _taken(counter: str, signal: StoredSignal) -> TakenSignal:
    return TakenSignal(counter, signal.number, to_raw(signal.payload))
