"""Doing something to many tasks: by uuids or by filters, at a pace, or only counting them.

What was not come to is as it was, and the same command goes on with it: nothing is remembered between two of them.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import click

from onthedot import Rate, StoreError
from onthedot.cli.interrupt import INTERRUPTED, ctrl_c
from onthedot.cli.options import CliError, GlobalOptions, as_where, filters, shared
from onthedot.cli.output import Screen, screen, write_json
from onthedot.cli.target import with_operations
from onthedot.operations import Operations
from onthedot.operations.task_queries import TaskFilter

_CHUNK = 100

Act = Callable[[Operations, Sequence[str]], Awaitable[int]]


def bulk(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.argument("uuids", nargs=-1, metavar="[UUID]..."),
        filters,
        click.option("--dry-run", is_flag=True, help="Only say how many they are."),
        click.option("--rate", metavar="N/s", help="Not all at once: 50/s, 100/m."),
        click.option("-y", "--yes", is_flag=True, help="Do not ask; in a pipe nobody is asked."),
        shared("store", "name", "app", "json"),
        click.pass_obj,
    )[::-1]:
        command = option(command)
    return command


def run_bulk(
    said: GlobalOptions, given: dict[str, Any], verbs: tuple[str, str], states: tuple[str, ...], act: Act
) -> None:
    """verbs: cancel, cancelled; states: where those are that filters without --state mean."""
    named, dry, rate, yes = (given.pop(name) for name in ("uuids", "dry_run", "rate", "yes"))
    where = as_where(given)
    if bool(named) == bool(where):
        both = ", not both" if named else ""
        raise click.UsageError(f"say which: uuids, or filters such as --source and --state{both}")
    pace = None if rate is None else Rate(rate).per_second
    uuids = _found(said, named, where, states)
    if dry:
        _tell(said, verbs[1], len(uuids), 0, f"{len(uuids)} would be {verbs[1]}")
        return
    if not (yes or named or said.json or not uuids or _agreed(f"{verbs[0]} {len(uuids)} tasks?")):
        raise CliError("nothing was done", 1)
    out = Screen() if said.json else screen()
    with out.progress(verbs[1], len(uuids)) as tell:
        done, came_to = with_operations(said, lambda operations: _paced(operations, uuids, act, pace, tell))
    if came_to < len(uuids):
        rest = f"{len(uuids) - came_to} are as they were; the same command goes on with them"
        _tell(said, verbs[1], len(uuids), done, f"interrupted: {verbs[1]} {done} of {len(uuids)}, {rest}", True)
        raise SystemExit(INTERRUPTED)
    _tell(said, verbs[1], len(uuids), done, f"{verbs[1]} {done} of {len(uuids)}")
    if named and not done:
        raise CliError(f"none was {verbs[1]}: see `onthedot task show` for where they are", 1)


def _tell(said: GlobalOptions, verb: str, found: int, done: int, text: str, interrupted: bool = False) -> None:
    if said.json:
        write_json({"found": found, verb: done} | ({"interrupted": True} if interrupted else {}))
    else:
        click.echo(text)


def _agreed(question: str) -> bool:
    """Somebody who sits at a terminal is asked. (Not inside the event loop: Ctrl+C must end the question.)"""
    return not (sys.stdin.isatty() and sys.stdout.isatty()) or click.confirm(question)


def _found(said: GlobalOptions, named: Sequence[str], where: TaskFilter, states: tuple[str, ...]) -> list[str]:
    async def work(operations: Operations) -> list[str]:
        if named:
            return [(await operations.get(each)).uuid for each in named]
        found: list[str] = []
        for state in (where["state"],) if "state" in where else states:
            where["state"] = state
            found += await operations.matching(**where)
        return list(dict.fromkeys(found))  # one that moves on between two looks is seen twice

    try:
        return with_operations(said, work)
    except KeyboardInterrupt:
        raise CliError("interrupted while looking for them: nothing was done", INTERRUPTED) from None


async def _paced(
    operations: Operations, uuids: Sequence[str], act: Act, pace: float | None, tell: Callable[[int], None]
) -> tuple[int, int]:
    """How many were done, and how far it came: less than all of them, if somebody pressed Ctrl+C."""
    done, first, began = 0, 0, time.monotonic()
    size = _CHUNK if pace is None else max(1, min(_CHUNK, int(pace / 10)))
    with ctrl_c() as asked:
        while first < len(uuids):
            if pace is not None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(asked.wait(), max(0.0, began + first / pace - time.monotonic()))
            if asked.is_set():
                break
            try:
                done += await act(operations, uuids[first : first + size])
            except StoreError as error:
                so_far = f"{done} of {len(uuids)} were done, and the same command goes on with the others"
                raise type(error)(f"{error} ({so_far})") from None
            first = min(first + size, len(uuids))
            tell(first)
    return done, first
