"""``onthedot source``: what waits, what limits it, who could run it; stop one, and let it go on."""

from __future__ import annotations

from collections.abc import Iterable

import click

from onthedot.cli.options import CliError, GlobalOptions, shared
from onthedot.cli.output import Screen, screen, write_json
from onthedot.cli.target import with_operations
from onthedot.errors import meant
from onthedot.model.limits import rate_text
from onthedot.operations import Operations
from onthedot.operations.limits import LimitInfo
from onthedot.operations.sources import Pause, SourceInfo, SourceLimit

_CODE = "code"  # gives back to the code what the operator had set
_MANY = 3  # keys with a limit or pause of their own that a table shows


@click.command("list")
@shared("store", "name", "app", "json")
@click.pass_obj
def listed(said: GlobalOptions) -> None:
    """Every source: what waits, runs and ended, its limits, who could run it, whether it is paused.

    PARKED ones are due and held back by the limit of their key. A name with @ is a lane that sources share.
    """
    sources = with_operations(said, lambda operations: operations.sources())
    if said.json:
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
    """Its own and those of every key first, then some of single keys."""
    general = (each.name, f"{each.name}/*")
    ordered = sorted(each.limits, key=lambda limit: limit.name not in general)
    return _shortened(list(map(_limit_text, ordered)), sum(limit.name in general for limit in ordered) + _MANY)


def _limit_text(limit: SourceLimit) -> str:
    what = rate_text(limit.rate) if limit.rate is not None else f"{limit.cap} at once"
    return what + _whose(limit.name) + (" (operator)" if limit.by == "operator" else "")


def _whose(limit: str) -> str:
    _, slash, key = limit.partition("/")
    return "" if not slash else " a key" if key == "*" else f" for {key}"


def pauses_text(out: Screen, each: SourceInfo) -> str:
    whole = [] if each.paused is None else [_pause_text(out, each.paused)]
    return _shortened([*whole, *(_pause_text(out, pause) for pause in each.paused_keys)], len(whole) + _MANY)


def _pause_text(out: Screen, pause: Pause) -> str:
    whose = "" if pause.key is None else f"{pause.key}: "
    return whose + " ".join(filter(None, [out.when(pause.since) if pause.since else "yes", pause.reason]))


def _shortened(texts: list[str], most: int) -> str:
    return ", ".join(texts[:most]) + (f", … {len(texts) - most} more" if len(texts) > most else "")


@click.command()
@click.argument("source")
@click.option("--key", help="Only tasks with this key: the value of the argument that its limit goes by.")
@click.option("--reason", default="", help="For whoever looks next.")
@click.option("--force", is_flag=True, help="Also a source that nobody knows yet.")
@shared("store", "name", "app", "json")
@click.pass_obj
def pause(said: GlobalOptions, source: str, key: str | None, reason: str, force: bool) -> None:
    """Start nothing more of SOURCE, in no process, until `source resume`; what runs goes on."""

    async def work(operations: Operations) -> SourceInfo:
        if not force:
            _of(await operations.sources(), source)  # a pause that holds nothing would be taken for one that does
        await operations.pause(source, key, reason)
        return _of(await operations.sources(), source)

    found = with_operations(said, work)
    if said.json:
        write_json({"source": found})
        return
    waits = f"{found.ready + found.parked} ready ones wait, " if key is None else ""
    click.echo(f"paused {_named(source, key)}: {waits}{found.running} running ones go on")


@click.command()
@click.argument("source")
@click.option("--key", help="Only this key.")
@shared("store", "name", "app", "json")
@click.pass_obj
def resume(said: GlobalOptions, source: str, key: str | None) -> None:
    """Let SOURCE go on."""

    async def work(operations: Operations) -> tuple[bool, SourceInfo]:
        _of(await operations.sources(), source)
        return await operations.resume(source, key), _of(await operations.sources(), source)

    was, found = with_operations(said, work)
    if said.json:
        write_json({"source": found, "resumed": was})
        return
    if was:
        click.echo(f"resumed {_named(source, key)}: {found.ready + found.parked} ready")
    else:
        click.echo(f"{_named(source, key)} was not paused")
    if key is None and found.paused_keys:
        keys = _shortened([each.key or "" for each in found.paused_keys], _MANY)
        click.echo(f"still paused: {keys}; --key KEY resumes one", err=True)


@click.command()
@click.argument("source")
@click.option("--key", help="Only tasks with this key, or '*': the keys that have no limit of their own.")
@click.option("--at-once", metavar="N", help="So many at once, in all processes together.")
@click.option("--rate", metavar="N/TIME", help="So many in a time: 10/s, 100/m, 5/2s.")
@click.option("--burst", type=float, help="So many of a rate at once after a pause; else one second's worth.")
@shared("store", "name", "app", "json")
@click.pass_obj
def limit(
    said: GlobalOptions, source: str, key: str | None, at_once: str | None, rate: str | None, burst: float | None
) -> None:
    """Limit SOURCE, or a lane that sources share (@name), in all processes and from now on.

    It stands over what the code says until it is given back: --at-once code, --rate code. What runs goes on.
    """
    if (at_once, rate, burst) == (None, None, None):
        raise CliError("nothing to change: say --at-once, --rate or --burst")
    if at_once not in (None, _CODE) and not at_once.isdecimal():
        raise CliError(f"--at-once {at_once!r} is no number")
    cap = ... if at_once is None else None if at_once == _CODE else int(at_once)
    pace = ... if rate is None else None if rate == _CODE else rate

    async def work(operations: Operations) -> LimitInfo:
        if source[0] != "@":
            _of(await operations.sources(), source)
        name, of = (f"{source}/*", None) if key == "*" else (source, key)
        return await operations.set_limit(name, of, cap=cap, rate=pace, burst=... if burst is None else burst)

    found = with_operations(said, work)
    if said.json:
        write_json({"limit": found})
        return
    blockers = [] if found.cap is None else [f"{found.cap} at once"]
    blockers += [] if found.rate is None else [f"{rate_text(found.rate)} (burst {found.burst:g})"]
    click.echo(f"{source}{_whose(found.name)}: {', '.join(blockers) or 'no limit'}")


def _of(sources: Iterable[SourceInfo], name: str) -> SourceInfo:
    known = {each.name: each for each in sources}
    if name not in known:
        raise CliError(f"no source {name!r} here{meant(name, known)}", 1)
    return known[name]


def _named(source: str, key: str | None) -> str:
    return source if key is None else f"{source} for {key}"
