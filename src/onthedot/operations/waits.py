"""The sleep or wait of a task, and its saved steps, from its record and its journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from onthedot.clock.epoch import from_ms, from_optional_ms
from onthedot.model.counter_names import signal_name
from onthedot.model.saved_steps import (
    SLEEP,
    UNTIL,
    WAIT,
    SavedSleep,
    SavedUntil,
    TakenSignal,
    decode_step,
    last_taken,
    read_value,
    step_name,
)
from onthedot.operations.humanize import plural
from onthedot.stores.contract import MAX_KEPT_SIGNALS, Note, Record, Store, Wait

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class StepInfo:
    """A saved step of a task."""

    name: str
    """Its name and number, such as ``charge#1``; ``#sleep#1`` and ``#wait:approved#1`` are a sleep and a wait."""
    size: int
    """Bytes in the store."""
    type: str = ""
    """The annotation by which its result was written."""
    since: datetime | None = None
    """When a wait began."""
    until: datetime | None = None
    """When a sleep or a wait is over."""
    signal: str = ""
    """Of a wait that is over: the name of the signal, or ``timeout``."""


async def step_notes(store: Store, uuid: str) -> list[Note]:
    """All saved steps, oldest first."""
    notes: list[Note] = []
    after = 0
    while True:
        page = await store.notes(uuid, after, _PAGE, "step")
        notes += [note for _, note in page]
        if len(page) < _PAGE:
            return notes
        after = page[-1][0]


async def step_infos(store: Store, uuid: str) -> list[StepInfo]:
    """The saved steps of a task, oldest first."""
    return [_step_info(note) for note in await step_notes(store, uuid)]


def _step_info(note: Note) -> StepInfo:
    step = decode_step(note.data)
    size = len(note.data)
    if note.name.startswith(SLEEP):
        return StepInfo(note.name, size, until=from_ms(read_value(step, SavedSleep).until))
    if note.name.startswith(UNTIL):
        saved = read_value(step, SavedUntil)
        return StepInfo(note.name, size, since=from_ms(saved.since), until=from_optional_ms(saved.until))
    if note.name.startswith(WAIT):
        taken = read_value(step, TakenSignal)
        return StepInfo(note.name, size, signal=signal_name(taken.counter) or "timeout")
    return StepInfo(note.name, size, step.type)


async def is_sleeping(store: Store, record: Record) -> bool:
    """Whether a task that is not due sleeps, and is not retried or snoozed."""
    if record.state != "scheduled" or record.history.started is None:
        return False
    notes = await step_notes(store, record.uuid)
    if not notes or step_name(notes[-1].name) != SLEEP:
        return False
    return read_value(decode_step(notes[-1].data), SavedSleep).until <= record.due


async def is_over(store: Store, wait: Wait) -> bool:
    """Whether one of the counters has reached its value: a worker's next turn ends the wait."""
    counters = await store.counters([name for name, _ in wait.counters])
    return any(counter.value >= value for counter, (_, value) in zip(counters, wait.counters, strict=True))


def awaited_signals(wait: Wait) -> list[str]:
    """Names of the signals that a task waits for; empty: it waits for other tasks."""
    names = [signal_name(counter) for counter, _ in wait.counters]
    return list(dict.fromkeys(name for name in names if name is not None))


async def signal_text(store: Store, record: Record, wait: Wait, moment: Callable[[float], str]) -> str:
    """wait: for signals. moment: the text of a time."""
    shown = " or ".join(f'"{name}"' for name in awaited_signals(wait))
    text = f"it waits for the signal {shown}"
    notes = await step_notes(store, record.uuid)
    begun = [note for note in notes if note.name.startswith(UNTIL)]
    if begun:
        text += f" since {moment(read_value(decode_step(begun[-1].data), SavedUntil).since)}"
    if record.history.wait_until is not None:
        text += f", until {moment(record.history.wait_until)}"
    if passed := await _passed_over(store, wait, notes):
        what = plural(passed, "kept signal is", "kept signals are")
        text += f"; {what} not taken: the payload does not fit the type that the task waits for"
    return text


async def _passed_over(store: Store, wait: Wait, notes: Sequence[Note]) -> int:
    """How many kept signals the task has read and not taken: those before the value that it waits for."""
    last = last_taken(decode_step(note.data) for note in notes if note.name.startswith(WAIT))
    count = 0
    for counter, value in wait.counters:
        page = await store.signals(counter, last.get(counter, 0), MAX_KEPT_SIGNALS)
        if page.value < value:  # otherwise one has come since, and a worker's next turn ends the wait
            count += len(page.signals)
    return count
