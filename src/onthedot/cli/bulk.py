"""Bulk actions: cancel or retry tasks by uuids or by filters, at a rate, or only count them.

An interrupted action leaves the other tasks as they were, and the same command goes on with them. No state is kept.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import click

from onthedot import Rate, StoreError
from onthedot.cli.interrupt import stop_event
from onthedot.cli.options import GlobalOptions, filters, task_filter
from onthedot.cli.output import screen, write
from onthedot.cli.target import with_operations
from onthedot.model.redaction import redacted
from onthedot.operations import Operations
from onthedot.operations.audit import Recorder, list_names
from onthedot.operations.humanize import plural
from onthedot.operations.task_queries import TaskFilter
from onthedot.supervisor.exit_codes import FAILED, INTERRUPTED, CommandError

_CHUNK = 100


class BulkAction(NamedTuple):
    """A change of many tasks.

    possible: the states of tasks that it can change; selected: those of them that filters without --state select;
    apply returns how many tasks it changed.
    """

    verb: str
    participle: str
    possible: tuple[str, ...]
    selected: tuple[str, ...]
    apply: Callable[[Operations, Sequence[str]], Awaitable[int]]


class _Selection(NamedTuple):
    """uuids: tasks to change; left: how many others were named or match, by their states, which rule a change out."""

    uuids: list[str]
    left: Mapping[str, int]

    @property
    def found(self) -> int:
        return len(self.uuids) + sum(self.left.values())

    def describe(self, text: str) -> str:
        if not self.left:
            return text
        return f"{text}; left as they are: {', '.join(f'{count} {state}' for state, count in self.left.items())}"


@dataclass
class _Progress:
    changed: int = 0
    visited: int = 0  # fewer than all: interrupted


def bulk_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.argument("uuids", nargs=-1, metavar="[UUID]..."),
        filters,
        click.option("--dry-run", is_flag=True, help="Only print how many there are."),
        click.option("--rate", metavar="N/s", help="So many in a time: 50/s, 100/m."),
        click.option("-y", "--yes", is_flag=True, help="Do not ask. In a pipe there is no question."),
    )[::-1]:
        command = option(command)
    return command


def run_bulk(options: GlobalOptions, given: dict[str, Any], action: BulkAction) -> None:
    named, dry_run, rate, yes = (given.pop(name) for name in ("uuids", "dry_run", "rate", "yes"))
    where = task_filter(given)
    if bool(named) == bool(where):
        problem = "say which: uuids, or filters such as --source and --state"
        raise click.UsageError(f"{problem}, not both" if named else problem)
    per_second = None if rate is None else Rate(rate).per_second
    target = _filter_text(where)
    selection = _select(options, named, where, action)
    uuids = selection.uuids
    total = selection.found
    done = action.participle
    if dry_run:
        _print(options, action, total, 0, selection.describe(f"{len(uuids)} would be {done}"))
        return
    if not (yes or named or options.json or not uuids or _confirm(f"{action.verb} {plural(len(uuids), 'task')}?")):
        raise CommandError("nothing was done", FAILED)
    progress = _Progress()

    async def work(operations: Operations) -> None:
        """All steps are one change."""
        async with operations.recorded(f"{action.verb} tasks", list_names(uuids) if named else target) as note:
            note.found = total
            steps = operations.recorded_by(Recorder())
            try:
                await _run(steps, uuids, action, per_second, advance, progress)
            finally:
                note.done = progress.visited
                note.changed = progress.changed

    bar = screen(plain=options.json).progress(done, len(uuids))
    with suppress(KeyboardInterrupt), bar as advance:  # a second Ctrl+C
        with_operations(options, work)
    changed = progress.changed
    if progress.visited < len(uuids):
        rest = f"{len(uuids) - progress.visited} are as they were; the same command goes on with them"
        text = f"interrupted: {done} {changed} of {len(uuids)}, {rest}"
        _print(options, action, total, changed, text, interrupted=True)
        raise SystemExit(INTERRUPTED)
    text = f"{done} {changed} of {total}" if total else f"no task matches, so none was {done}"
    _print(options, action, total, changed, selection.describe(text))
    if named and not changed:
        can = f"{action.verb} changes tasks that are {_either(action.possible)}"
        raise CommandError(f"none was {done}: {can}; `onthedot task show` says more", FAILED)


def _either(states: Sequence[str]) -> str:
    return f"{', '.join(states[:-1])} or {states[-1]}"


def _print(
    options: GlobalOptions, action: BulkAction, found: int, changed: int, text: str, interrupted: bool = False
) -> None:
    answer = {"found": found, action.participle: changed}
    if interrupted:
        answer["interrupted"] = True
    write(text, answer, json=options.json)


def _filter_text(where: TaskFilter) -> str:
    """For the audit, which keeps no secrets."""
    return " ".join(f"{name}:{redacted(value)}" for name, value in where.items())


def _confirm(question: str) -> bool:
    """Ask at a terminal. (Outside the event loop: Ctrl+C must end the question.)"""
    try:
        return not (sys.stdin.isatty() and sys.stdout.isatty()) or click.confirm(question)
    except click.Abort:
        click.echo(err=True)  # ends the line of the question
        raise CommandError("interrupted: nothing was done", INTERRUPTED) from None


def _select(options: GlobalOptions, named: Sequence[str], where: TaskFilter, action: BulkAction) -> _Selection:
    async def work(operations: Operations) -> _Selection:
        if named:
            return await _select_named(operations, named, action)
        found: list[str] = []
        given = where.get("state")
        for state in action.selected if given is None else (given,):
            where["state"] = state
            found += await operations.tasks.matching(**where)
        uuids = list(dict.fromkeys(found))  # a task that changes its state between two queries is found twice
        if uuids and given is not None and given not in action.possible:
            return _Selection([], {given: len(uuids)})
        return _Selection(uuids, {})

    try:
        return with_operations(options, work)
    except KeyboardInterrupt:
        raise CommandError("interrupted while looking for them: nothing was done", INTERRUPTED) from None


async def _select_named(operations: Operations, named: Sequence[str], action: BulkAction) -> _Selection:
    uuids = dict.fromkeys([await operations.tasks.complete_uuid(each) for each in named])
    tasks = await operations.tasks.get_many(list(uuids))
    left = Counter(task.state.value for task in tasks if task.state.value not in action.possible)
    return _Selection([task.uuid for task in tasks if task.state.value in action.possible], left)


async def _run(
    operations: Operations,
    uuids: Sequence[str],
    action: BulkAction,
    per_second: float | None,
    advance: Callable[[int], None],
    progress: _Progress,
) -> None:
    began = time.monotonic()
    size = _CHUNK
    if per_second is not None:
        size = max(1, min(_CHUNK, int(per_second / 10)))
    with stop_event() as stop:
        while progress.visited < len(uuids):
            visited = progress.visited
            if per_second is not None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), max(0.0, began + visited / per_second - time.monotonic()))
            if stop.is_set():
                break
            try:
                progress.changed += await action.apply(operations, uuids[visited : visited + size])
            except StoreError as error:
                so_far = f"{progress.changed} of {len(uuids)} were done, and the same command goes on with the others"
                raise type(error)(f"{error} ({so_far})") from None
            progress.visited = min(visited + size, len(uuids))
            advance(progress.visited)
