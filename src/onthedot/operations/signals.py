"""Signals that are kept, and the tasks that wait for signals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

from onthedot.clock.epoch import from_ms, from_optional_ms
from onthedot.codec.body import Undecodable
from onthedot.codec.untyped import decode_untyped_result
from onthedot.model.counter_names import own_signal, shared_signal, signal_name
from onthedot.operations.audit import Recorded
from onthedot.operations.task_queries import find_pages
from onthedot.operations.waits import awaited_signals
from onthedot.stores.contract import MAX_KEPT_SIGNALS, NewSignal, Record, Store, StoredSignal

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class KeptSignal:
    """A signal in the store."""

    name: str
    id: str
    at: datetime
    payload: object
    to: str | None = None  # uuid of the task that it is addressed to


@dataclass(frozen=True, slots=True)
class WaitingTask:
    """A task that waits for signals."""

    uuid: str
    source: str
    names: tuple[str, ...]
    since: datetime | None
    until: datetime | None


class SignalOperations(Recorded):
    """Sends and lists the signals of one app."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def send(self, signal: NewSignal) -> bool:
        """Store a signal. False: its id is kept under its name already."""
        async with self._recorder.change("signal", _target(signal)) as note:
            (is_new,) = await self._store.signal((signal,))
            note.changed = int(is_new)
        return is_new

    async def takers(self, name: str, to: str | None = None) -> list[WaitingTask]:
        """Return the tasks that wait for this signal now, the newest first. to: if it is sent to this task only."""
        counter = _counter(name, to)
        (now,) = await self._store.counters([counter])
        found: list[WaitingTask] = []
        async for page in find_pages(self._store, {"waits_for": counter}, _PAGE):
            for record in page:
                values = {} if record.wait is None else dict(record.wait.counters)
                if now.value < values.get(counter, 0):  # otherwise its wait is over: an earlier signal ends it
                    found.append(_waiting_task(record))
        return found

    async def kept(self, name: str, to: str | None = None) -> list[KeptSignal]:
        """Return the signals under a name, in order. to: those addressed to this task."""
        page = await self._store.signals(_counter(name, to), 0, MAX_KEPT_SIGNALS)
        return [KeptSignal(name, each.id, from_ms(each.number), _payload(each), to) for each in page.signals]

    async def waiting(self, name: str | None = None) -> AsyncIterator[WaitingTask]:
        """Yield the tasks that wait for a signal, newest first. name: only for this one."""
        async for page in find_pages(self._store, {"state": "waiting"}, _PAGE):
            for record in page:
                names = () if record.wait is None else tuple(awaited_signals(record.wait))
                if names and name in (None, *names):
                    yield _waiting_task(record)


def _counter(name: str, to: str | None) -> str:
    return shared_signal(name) if to is None else own_signal(to, name)


def _target(signal: NewSignal) -> str:
    name = signal_name(signal.name) or signal.name
    to = signal.name.partition("~")[0]
    return f"{name} to {to}" if to else name


def _waiting_task(record: Record) -> WaitingTask:
    names = () if record.wait is None else tuple(awaited_signals(record.wait))
    since = from_optional_ms(record.history.started)
    return WaitingTask(record.uuid, record.source, names, since, from_optional_ms(record.history.wait_until))


def _payload(signal: StoredSignal) -> object:
    try:
        return decode_untyped_result(signal.payload)
    except Undecodable as error:
        return f"<{error}>"
