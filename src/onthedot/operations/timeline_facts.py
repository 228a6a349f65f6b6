"""The waits, sleeps and pauses of a task, as its saved steps, its children and the audit log have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from onthedot.clock.epoch import from_ms, from_optional_ms
from onthedot.model.counter_names import own_signal, shared_signal, signal_name
from onthedot.model.flow_names import counter_flow, is_child_flow, is_end_counter
from onthedot.model.saved_steps import (
    RUN,
    SLEEP,
    UNTIL,
    WAIT,
    SavedChild,
    SavedSleep,
    SavedUntil,
    TakenSignal,
    decode_step,
    read_value,
    until_key,
)
from onthedot.model.task import TaskInfo
from onthedot.operations.audit import AuditOperations, AuditRecord, limit_name
from onthedot.operations.humanize import plural, short_id
from onthedot.operations.timeline import PausedSpan, RecordedWait, TimelineFacts, TimelineSegment, timeline
from onthedot.operations.waits import awaited_signals, step_notes
from onthedot.stores.contract import ENDED, Note, Record, Store

_SLEEPS = "sleep"
_SHORT = timedelta(milliseconds=100)  # nobody pauses and resumes in less
_MAX_CHANGES = 2000  # entries of the audit log that are read for one task


async def read_timeline(store: Store, audit: AuditOperations, record: Record, info: TaskInfo) -> list[TimelineSegment]:
    """The segments of a task, with the pauses that held it back."""
    segments = timeline(info, await read_facts(store, record))
    pending = [
        each for each in segments if each.kind == "pending" and (each.end is None or each.end - each.begin > _SHORT)
    ]
    if not pending:
        return segments
    pauses = await read_pauses(audit, _limit_names(record), pending[-1].end)
    return [_with_pauses(each, pauses) if each.kind == "pending" else each for each in segments]


# -- waits


async def read_facts(store: Store, record: Record) -> TimelineFacts:
    """All that is recorded of a task beside its errors."""
    notes = await step_notes(store, record.uuid)
    waits = [*_sleeps(notes, record), *await _signal_waits(store, notes, record), *await _child_waits(store, notes)]
    present = ""
    wait = record.wait
    if wait is not None:
        names = awaited_signals(wait)
        present = _signals_text(names) if names else _tasks_text(wait.counters[0])
        waits += await _present_child_wait(store, record, present)
    at_first = ""
    if record.links is not None and record.links.waits is not None:
        at_first = _tasks_text(record.links.waits.counters[0])
    has_crashed = record.history.reason in ("crash", "crashed") and record.state not in (*ENDED, "running")
    return TimelineFacts(waits, present, at_first, from_ms(record.due), has_crashed)


def _sleeps(notes: Sequence[Note], record: Record) -> list[RecordedWait]:
    found: list[RecordedWait] = []
    for note in notes:
        if note.name.startswith(SLEEP):
            saved = read_value(decode_step(note.data), SavedSleep)
            if saved.since:
                is_present = record.state == "scheduled" and record.due >= saved.until
                end = None if is_present else from_ms(min(saved.until, record.history.ended or saved.until))
                found.append(
                    RecordedWait(
                        "scheduled", from_ms(saved.since), end, _SLEEPS, from_optional_ms(saved.run_since or None)
                    )
                )
    return found


async def _signal_waits(store: Store, notes: Sequence[Note], record: Record) -> list[RecordedWait]:
    """Begin and deadline of a wait are a step, and what has ended it is another one."""
    taken = {
        until_key(note.name): read_value(decode_step(note.data), TakenSignal)
        for note in notes
        if note.name.startswith(WAIT)
    }
    found: list[RecordedWait] = []
    for note in notes:
        if not note.name.startswith(UNTIL):
            continue
        saved = read_value(decode_step(note.data), SavedUntil)
        names = note.name.removeprefix(UNTIL).rpartition("#")[0].split("|")
        signal = taken.get(note.name)
        if signal is None:
            end = await _end_of_open_wait(store, names, saved, record)
            text = _signals_text(names)
        elif not signal.counter:
            end = saved.until
            text = f"{_signals_text(names)}, which did not come in time"
        else:
            end = max(signal.number, saved.since)
            text = _signals_text([signal_name(signal.counter) or ""])
        found.append(
            RecordedWait(
                "waiting", from_ms(saved.since), from_optional_ms(end), text, from_optional_ms(saved.run_since or None)
            )
        )
    return found


async def _end_of_open_wait(store: Store, names: Sequence[str], saved: SavedUntil, record: Record) -> int | None:
    """Of a wait whose signal the task has not taken: a signal sets its counter to the time. None: it goes on."""
    if record.state == "waiting":
        return None
    ends = [each for each in (saved.until, record.history.ended) if each is not None]
    counters = [counter for name in names for counter in (shared_signal(name), own_signal(record.uuid, name))]
    ends += [each.value for each in await store.counters(counters) if each.value >= saved.since]
    return min(ends, default=None)


async def _child_waits(store: Store, notes: Sequence[Note]) -> list[RecordedWait]:
    """A child is added by the step that suspends its parent, and its end ends the wait."""
    children = [read_value(decode_step(note.data), SavedChild).flow for note in notes if note.name.startswith(RUN)]
    if not children:
        return []
    found: list[RecordedWait] = []
    for child in await store.get(children):
        if child is not None and child.history.ended is not None:
            text = f"child {child.source} {short_id(child.uuid)}"
            found.append(RecordedWait("waiting", from_ms(child.added), from_ms(child.history.ended), text))
    return found


async def _present_child_wait(store: Store, record: Record, text: str) -> list[RecordedWait]:
    """Of a task that waits for its child now."""
    wait = record.wait
    if wait is None or record.history.started is None or not is_end_counter(wait.counters[0][0]):
        return []
    flow = counter_flow(wait.counters[0][0])
    if flow is None or not is_child_flow(flow):
        return []
    (child,) = await store.get([flow])
    if child is None or child.added < record.history.started:
        return []
    return [RecordedWait("waiting", from_ms(child.added), None, text, from_ms(record.history.started))]


def _signals_text(names: Sequence[str]) -> str:
    """
    >>> _signals_text(["approved", "paid"])
    'signal "approved" or "paid"'
    """
    return "signal " + " or ".join(f'"{name}"' for name in names)


def _tasks_text(counter: tuple[str, int]) -> str:
    """
    >>> _tasks_text(("nightly#1", 3)), _tasks_text(("nightly!", 1))
    ('3 tasks of flow nightly', 'the end of flow nightly')
    """
    name, value = counter
    flow = counter_flow(name)
    if flow is None:
        return _signals_text([signal_name(name) or name])
    if is_end_counter(name):
        return f"the end of {'child' if is_child_flow(flow) else 'flow'} {short_id(flow)}"
    return f"{plural(value, 'task')} of flow {short_id(flow)}"


# -- pauses


def _limit_names(record: Record) -> frozenset[str]:
    """The limits whose pause holds a task back."""
    if record.lane is None:
        return frozenset({record.source})
    head, slash, _ = record.lane.partition("/")
    return frozenset({record.source, record.lane, f"{head}/*" if slash else head})


async def read_pauses(audit: AuditOperations, limits: frozenset[str], until: datetime | None) -> list[PausedSpan]:
    """The recorded pauses of these limits that began before a time. A bounded part of the audit log is read."""
    changes = [
        record
        for record in await audit.changes_of_pauses(until, _MAX_CHANGES)
        if limit_name(record.entry.target) in limits
    ]
    found: list[PausedSpan] = []
    begun: dict[str, AuditRecord] = {}
    for record in changes:
        name = limit_name(record.entry.target)
        if record.entry.action == "pause":
            begun.setdefault(name, record)
        elif (pause := begun.pop(name, None)) is not None:
            found.append(_span(pause, record.at))
    found += [_span(pause, None) for pause in begun.values()]
    return sorted(found, key=lambda span: span.begin)


def _span(pause: AuditRecord, end: datetime | None) -> PausedSpan:
    return PausedSpan(pause.at, end, pause.entry.user, pause.entry.reason)


def _with_pauses(segment: TimelineSegment, pauses: Sequence[PausedSpan]) -> TimelineSegment:
    """The parts of the pauses that are within a segment."""
    inside: list[PausedSpan] = []
    for pause in pauses:
        begin = max(pause.begin, segment.begin)
        end = pause.end if segment.end is None else min(pause.end or segment.end, segment.end)
        if end is None or end > begin:
            inside.append(replace(pause, begin=begin, end=end))
    return replace(segment, paused=tuple(inside))
