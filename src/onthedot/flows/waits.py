"""Sleeps and waits for signals: their deadlines are saved, and the run ends until they are over."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil
from typing import Any, NamedTuple

from msgspec import Struct

from onthedot.clock.durations import Duration, to_duration_ms
from onthedot.clock.epoch import from_ms
from onthedot.engine.repeated_calls import RepeatedCalls
from onthedot.engine.suspension import Suspension
from onthedot.errors import StepChanged
from onthedot.flows.journal import StepJournal, StepRequest
from onthedot.flows.signals import UnreadablePayload, check_signal_name, decode_payload
from onthedot.model.context import RunState
from onthedot.model.counter_names import own_signal, shared_signal, signal_name
from onthedot.model.saved_steps import (
    SLEEP,
    WAIT,
    SavedSleep,
    SavedUntil,
    TakenSignal,
    from_raw,
    last_taken,
    read_value,
    saved_value,
    to_raw,
    until_key,
)
from onthedot.model.signals import Signal
from onthedot.model.value_errors import InvalidOption, SettingError
from onthedot.stores.contract import MAX_WAIT_COUNTERS, Requeued, Store, Suspended, Wait

_MAX_NAMES = MAX_WAIT_COUNTERS // 2  # a shared and an own counter each
_PAGE = 10  # signals that are read at once; the first is nearly always the one


class _Candidate(NamedTuple):
    """A signal that the task may take.

    The number is a time in ms. Ids that a process makes grow, so they order the signals of one millisecond.
    """

    number: int
    id: str
    taken: TakenSignal
    signal: Signal


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
            now = self._now()
            until = ceil(now + ms)
            await self._save(request.key, request, SavedSleep(until, int(now), int(self._run.started)))
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
            found = await self._take(request, names, ms, kind)
        else:
            found = self._decode_taken(request, read_value(saved, TakenSignal), kind)
        if found is None:
            shown = " or ".join(f'"{name}"' for name in names)
            raise TimeoutError(f"no signal {shown} came in time")
        return found

    def _decode_taken(self, request: StepRequest, taken: TakenSignal, kind: Any) -> Signal | None:
        """A signal that an earlier run has taken; None: the wait has timed out."""
        if not taken.counter:
            return None
        try:
            return _signal(taken, kind)
        except UnreadablePayload as error:
            raise StepChanged(
                self._run.record.uuid,
                f"{error}. An earlier run has taken it in {request.key!r}; declare a type that reads it, then retry "
                "the task",
            ) from error

    async def _take(self, request: StepRequest, names: Sequence[str], timeout: int | None, kind: Any) -> Signal | None:
        """The first signal that this task has not taken, or the end of the time. Otherwise the run ends here."""
        wait, candidate = await self._look(names, kind)
        if candidate is None:
            deadline = await self._deadline(request, timeout)
            if deadline is None or deadline > self._now():
                left = None if deadline is None else ceil(deadline - self._now())
                raise Suspension(Suspended(self._run.lease, Wait(wait, left)))
            await self._save(request.key, request, TakenSignal())
            return None
        await self._save(request.key, request, candidate.taken)
        return candidate.signal

    async def _look(self, names: Sequence[str], kind: Any) -> tuple[tuple[tuple[str, int], ...], _Candidate | None]:
        """The counters to wait for, and the signal with the lowest number that is there already."""
        last = last_taken(self._journal.saved_waits())
        uuid = self._run.record.uuid
        counters = [counter for name in names for counter in (shared_signal(name), own_signal(uuid, name))]
        wait: list[tuple[str, int]] = []
        found: list[_Candidate] = []
        for counter in dict.fromkeys(counters):
            value, candidate = await self._first(counter, last.get(counter, 0), kind)
            wait.append((counter, value + 1))
            if candidate is not None:
                found.append(candidate)
        return tuple(wait), min(found, key=lambda each: each[:2], default=None)

    async def _first(self, counter: str, after: int, kind: Any) -> tuple[int, _Candidate | None]:
        """The value of a counter, and the first of its signals that can be read.

        One that cannot be read is passed over: taking it would fail this task for a mistake of the sender, and all its
        retries. It is not saved as taken, so code with another type may still read it.
        """
        while True:
            page = await self._calls.run(partial(self._store.signals, counter, after, _PAGE))
            for each in page.signals:
                taken = TakenSignal(counter, each.number, to_raw(each.payload))
                try:
                    return page.value, _Candidate(each.number, each.id, taken, _signal(taken, kind))
                except UnreadablePayload as error:
                    self._run.context.logger.warning(
                        "task %s from %s goes on waiting: %s",
                        self._run.record.uuid, self._run.record.source, error.line,
                    )  # fmt: skip
            if len(page.signals) < _PAGE:
                return page.value, None
            after = page.signals[-1].number

    async def _deadline(self, request: StepRequest, timeout: int | None) -> int | None:
        key = until_key(request.key)
        saved = self._journal.peek(key)
        if saved is not None:
            return read_value(saved, SavedUntil).until
        now = self._now()
        until = None if timeout is None else ceil(now + timeout)
        await self._save(key, request, SavedUntil(int(now), until, int(self._run.started)))
        return until

    async def _save(self, key: str, request: StepRequest, value: Struct) -> None:
        await self._journal.save(key, saved_value(request.position, value, request.after_errors))


def _signal(taken: TakenSignal, kind: Any) -> Signal:
    name = signal_name(taken.counter) or ""
    return Signal(name, decode_payload(name, from_raw(taken.payload), kind), from_ms(taken.number))
