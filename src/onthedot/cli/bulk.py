"""Doing something to many tasks: by uuids or by filters, at a pace, or only counting them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click

from onthedot import Rate
from onthedot.cli.options import Mistake, Said, as_where, filters, shared
from onthedot.cli.screen import write_json
from onthedot.cli.store import ask
from onthedot.operations import Operations
from onthedot.operations.finding import Where

_CHUNK = 100

Act = Callable[[Operations, Sequence[str]], Awaitable[int]]


def bulk(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.argument("uuids", nargs=-1, metavar="[UUID]..."),
        filters,
        click.option("--dry-run", is_flag=True, help="Only say how many they are."),
        click.option("--rate", metavar="N/s", help="Not all at once: 50/s, 100/m."),
        shared("store", "name", "app", "json"),
        click.pass_obj,
    )[::-1]:
        command = option(command)
    return command


def act_on(said: Said, given: dict[str, Any], verb: str, states: tuple[str, ...], act: Act) -> None:
    named, dry, rate = given.pop("uuids"), given.pop("dry_run"), given.pop("rate")
    where = as_where(given)
    if bool(named) == bool(where):
        raise click.UsageError("say which: uuids, or filters such as --source and --state")
    pace = None if rate is None else Rate(rate).per_second

    async def work(operations: Operations) -> tuple[int, int]:
        uuids = await _named(operations, named) if named else await _matching(operations, where, states)
        return len(uuids), 0 if dry else await _paced(operations, uuids, act, pace)

    found, done = ask(said, work)
    if said.json:
        write_json({"found": found, verb: done})
    else:
        click.echo(f"{found} would be {verb}" if dry else f"{verb} {done} of {found}")
    if named and not dry and not done:
        raise Mistake(f"none was {verb}: see `onthedot task show` for where they are", 1)


async def _named(operations: Operations, beginnings: Sequence[str]) -> list[str]:
    return [(await operations.get(each)).uuid for each in beginnings]


async def _matching(operations: Operations, where: Where, states: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for state in (where["state"],) if "state" in where else states:
        where["state"] = state
        found += await operations.matching(**where)
    return found


async def _paced(operations: Operations, uuids: Sequence[str], act: Act, pace: float | None) -> int:
    done, began = 0, time.monotonic()
    size = _CHUNK if pace is None else max(1, min(_CHUNK, int(pace / 10)))
    for first in range(0, len(uuids), size):
        if pace is not None:
            await asyncio.sleep(max(0.0, began + first / pace - time.monotonic()))
        done += await act(operations, uuids[first : first + size])
    return done
