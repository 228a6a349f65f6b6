"""``onthedot source``: list, pause, resume and limit sources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from onthedot.cli.options import GlobalOptions, store_command
from onthedot.cli.output import Screen, screen, write_json
from onthedot.cli.target import with_operations
from onthedot.errors import suggestion
from onthedot.model.limits import rate_text
from onthedot.operations import Operations
from onthedot.operations.humanize import suffix
from onthedot.operations.limits import LimitInfo
from onthedot.operations.sources import Pause, SourceInfo, SourceLimit
from onthedot.supervisor.exit_codes import FAILED, CommandError

_CODE = "code"  # the value of an option that removes the operator's limit
_MAX_KEYS = 3  # shown in a table: keys with a limit or pause of their own


@store_command("list")
def list_sources(options: GlobalOptions) -> None:
    """Every source: its tasks by state, its limits, the workers that know it, its pauses.

    PARKED tasks are due, but the limit of their key has no capacity. A name with @ is a lane that sources share.
    """
    sources = with_operations(options, lambda operations: operations.sources())
    if options.json:
        write_json({"sources": sources})
        return
    out = screen()
    rows = [
        [each.name, *map(str, _counts(each)), str(each.workers), limits_text(each), pauses_text(out, each)]
        for each in sources
    ]
    columns = ("SOURCE", "READY", "PARKED", "SCHEDULED", "RUNNING", "FAILED", "ENDED", "WORKERS", "LIMITS", "PAUSED")
    if rows:
        out.table(columns, rows)
    else:
        click.echo("no source has tasks, limits or a worker yet", err=True)


def _counts(each: SourceInfo) -> tuple[int, ...]:
    ended = each.succeeded + each.failed + each.cancelled
    return each.ready, each.parked, each.scheduled, each.running, each.failed, ended


def limits_text(each: SourceInfo) -> str:
    """The limits of the source and of every key first, then some of single keys."""
    general = (each.name, f"{each.name}/*")
    ordered = sorted(each.limits, key=lambda limit: limit.name not in general)
    return _shortened(list(map(_limit_text, ordered)), sum(limit.name in general for limit in ordered) + _MAX_KEYS)


def _limit_text(limit: SourceLimit) -> str:
    text = f"{limit.cap} at once"
    if limit.rate is not None:
        text = rate_text(limit.rate)
    text += _whose(limit.name)
    if limit.by == "operator":
        text += " (operator)"
    return text


def _whose(limit: str) -> str:
    _, slash, key = limit.partition("/")
    if not slash:
        return ""
    return " per key" if key == "*" else f" for {key}"


def pauses_text(out: Screen, each: SourceInfo) -> str:
    keys = [_pause_text(out, pause) for pause in each.paused_keys]
    if each.paused is None:
        return _shortened(keys, _MAX_KEYS)
    return _shortened([_pause_text(out, each.paused), *keys], 1 + _MAX_KEYS)


def _pause_text(out: Screen, pause: Pause) -> str:
    since = out.when(pause.since) if pause.since else "yes"
    text = since + suffix(" ", pause.reason)
    if pause.key is None:
        return text
    return f"{pause.key}: {text}"


def _shortened(texts: list[str], most: int) -> str:
    shown = ", ".join(texts[:most])
    if len(texts) > most:
        shown += f", … {len(texts) - most} more"
    return shown


@store_command()
@click.argument("source")
@click.option("--key", help="Only tasks with this key: the value of the argument that its limit goes by.")
@click.option("--reason", default="", help="Shown by `source list`.")
@click.option("--force", is_flag=True, help="Also a source that no worker or task has yet.")
def pause(options: GlobalOptions, source: str, key: str | None, reason: str, force: bool) -> None:
    """Start no more tasks of SOURCE, in any process, until `source resume`. Running tasks go on."""

    async def work(operations: Operations) -> SourceInfo:
        if not force:
            _find(await operations.sources(), source)  # a misspelt name would pause nothing
        await operations.pause(source, key, reason)
        return _find(await operations.sources(), source)

    found = with_operations(options, work)
    if options.json:
        write_json({"source": found})
        return
    waits = f"{found.ready + found.parked} ready ones wait, " if key is None else ""
    click.echo(f"paused {_named(source, key)}: {waits}{found.running} running ones go on")


@store_command()
@click.argument("source")
@click.option("--key", help="Only this key.")
def resume(options: GlobalOptions, source: str, key: str | None) -> None:
    """Resume SOURCE, or one key of it."""

    async def work(operations: Operations) -> tuple[bool, SourceInfo]:
        _find(await operations.sources(), source)
        was_paused = await operations.resume(source, key)
        return was_paused, _find(await operations.sources(), source)

    was_paused, found = with_operations(options, work)
    if options.json:
        write_json({"source": found, "resumed": was_paused})
        return
    if was_paused:
        click.echo(f"resumed {_named(source, key)}: {found.ready + found.parked} ready")
    else:
        click.echo(f"{_named(source, key)} was not paused")
    if key is None and found.paused_keys:
        keys = _shortened([each.key or "" for each in found.paused_keys], _MAX_KEYS)
        click.echo(f"still paused: {keys}; --key KEY resumes one", err=True)


@store_command()
@click.argument("source")
@click.option("--key", help="Only tasks with this key, or '*': the keys that have no limit of their own.")
@click.option("--at-once", metavar="N", help="Running at once, in all processes together.")
@click.option("--rate", metavar="N/TIME", help="Starts in a time: 10/s, 100/m, 5/2s.")
@click.option("--burst", type=float, help="Starts at once after a pause. [one second of the rate]")
def limit(
    options: GlobalOptions, source: str, key: str | None, at_once: str | None, rate: str | None, burst: float | None
) -> None:
    """Limit SOURCE, or a lane that sources share (@name), in all processes and from now on.

    It overrides the limit of the code until `--at-once code` or `--rate code` removes it. Running tasks go on.
    """
    if (at_once, rate, burst) == (None, None, None):
        raise CommandError("nothing to change: say --at-once, --rate or --burst")
    if at_once not in (None, _CODE) and not at_once.isdecimal():
        raise CommandError(f"--at-once {at_once!r} is no number")
    changes: dict[str, Any] = {}
    if burst is not None:
        changes["burst"] = burst
    if at_once is not None:
        changes["cap"] = None if at_once == _CODE else int(at_once)
    if rate is not None:
        changes["rate"] = None if rate == _CODE else rate

    async def work(operations: Operations) -> LimitInfo:
        if source[0] != "@":
            _find(await operations.sources(), source)
        if key == "*":
            return await operations.limits.set(f"{source}/*", **changes)
        return await operations.limits.set(source, key, **changes)

    found = with_operations(options, work)
    if options.json:
        write_json({"limit": found})
        return
    limits: list[str] = []
    if found.cap is not None:
        limits.append(f"{found.cap} at once")
    if found.rate is not None:
        limits.append(f"{rate_text(found.rate)} (burst {found.burst:g})")
    click.echo(f"{source}{_whose(found.name)}: {', '.join(limits) or 'no limit'}")


def _find(sources: Iterable[SourceInfo], name: str) -> SourceInfo:
    known = {each.name: each for each in sources}
    if name not in known:
        raise CommandError(f"no source {name!r} here{suggestion(name, known)}", FAILED)
    return known[name]


def _named(source: str, key: str | None) -> str:
    return source if key is None else f"{source} for {key}"
