"""Signals that are kept, and the tasks that wait for signals."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from onthedot.clock.epoch import from_ms, from_optional_ms
from onthedot.codec.body import Undecodable
from onthedot.codec.untyped import decode_untyped_result
from onthedot.model.counter_names import own_signal, shared_signal, signal_name
from onthedot.model.task_info import decode_body
from onthedot.operations.audit import Recorded
from onthedot.operations.task_queries import find_pages
from onthedot.operations.waits import awaited_signals
from onthedot.stores.contract import MAX_KEPT_SIGNALS, NewSignal, Record, Store, StoredSignal

_PAGE = 1000
_MAX_LOOKED_AT = 20_000  # tasks
_MAX_NAMES = 20
_MAX_SIGNALS = 1000  # whose names are read


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
    label: str = ""
    flow: str | None = None  # the flow that it belongs to
    needed: int = 0  # of the tasks that it waits for
    reached: int = 0  # how many of these have ended


@dataclass(frozen=True, slots=True)
class AwaitedSignal:
    """The kept signals under a name, and how many tasks wait for it."""

    name: str
    waiting: int
    kept: int
    oldest: datetime | None


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

    async def waiting_tasks(
        self, limit: int, name: str | None = None, flow: str | None = None, source: str | None = None
    ) -> tuple[list[WaitingTask], bool]:
        """Return tasks that wait for signals, which come first, or for other tasks, and whether there are more.

        name: only tasks that wait for this signal; flow, source: only of these. At most 20,000 tasks are looked at.
        """
        where = {"state": "waiting"}
        if flow is not None:
            where["flow"] = flow
        if source is not None:
            where["source"] = source
        for_signals: list[Record] = []
        for_tasks: list[Record] = []
        looked_at = 0
        async for page in find_pages(self._store, where, _PAGE):
            looked_at += len(page)
            for record in page:
                names = () if record.wait is None else awaited_signals(record.wait)
                found_for = None
                if names and name in (None, *names):
                    found_for = for_signals
                elif not names and name is None:
                    found_for = for_tasks
                if found_for is not None and len(found_for) <= limit:  # one more says that there are more
                    found_for.append(record)
            if len(for_signals) > limit or looked_at >= _MAX_LOOKED_AT:
                break
        found = [*for_signals, *for_tasks]
        return await self._with_counters(found[:limit]), len(found) > limit or looked_at >= _MAX_LOOKED_AT

    async def waiting_task(self, uuid: str) -> WaitingTask | None:
        """Return what a task waits for; None: it does not wait."""
        (record,) = await self._store.get([uuid])
        if record is None or record.wait is None:
            return None
        (found,) = await self._with_counters([record])
        return found

    async def _with_counters(self, records: Sequence[Record]) -> list[WaitingTask]:
        first = [None if record.wait is None else record.wait.counters[0] for record in records]
        names = sorted({counter[0] for counter in first if counter is not None})
        values = dict(zip(names, await self._store.counters(names), strict=True)) if names else {}
        found: list[WaitingTask] = []
        for record, counter in zip(records, first, strict=True):
            task = _waiting_task(record)
            _, headers = decode_body(record)
            flow = None if record.links is None else record.links.flow
            needed = 0
            reached = 0
            if counter is not None and not task.names:
                needed = counter[1]
                reached = min(needed, values[counter[0]].value)
            found.append(replace(task, label=headers.label, flow=flow, needed=needed, reached=reached))
        return found

    async def awaited(self, tasks: Sequence[WaitingTask], *, others: bool = False) -> list[AwaitedSignal]:
        """Return the kept signals of the names for which these tasks wait, at most 20 names.

        others: then of names for which none of them waits, those that expire last first; without signals to one task
        """
        counts = Counter(name for task in tasks for name in task.names)
        names = [name for name, _ in counts.most_common(_MAX_NAMES)]
        if others:
            shared = [name for name in map(_shared_name, await self._store.signal_names(_MAX_SIGNALS)) if name]
            names += [name for name in shared if name not in counts]
        found: list[AwaitedSignal] = []
        for name in names[:_MAX_NAMES]:
            kept = (await self._store.signals(shared_signal(name), 0, MAX_KEPT_SIGNALS)).signals
            oldest = from_ms(kept[0].number) if kept else None
            found.append(AwaitedSignal(name, counts[name], len(kept), oldest))
        return found

    async def waiting(self, name: str | None = None) -> AsyncIterator[WaitingTask]:
        """Yield the tasks that wait for a signal, newest first. name: only for this one."""
        async for page in find_pages(self._store, {"state": "waiting"}, _PAGE):
            for record in page:
                names = () if record.wait is None else tuple(awaited_signals(record.wait))
                if names and name in (None, *names):
                    yield _waiting_task(record)


def _counter(name: str, to: str | None) -> str:
    return shared_signal(name) if to is None else own_signal(to, name)


def _shared_name(counter: str) -> str | None:
    """
    >>> _shared_name("~approved"), _shared_name("0193~approved")
    ('approved', None)
    """
    name = signal_name(counter)
    return name if name is not None and counter == shared_signal(name) else None


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
