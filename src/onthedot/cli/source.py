"""``onthedot source``: list, pause, resume, limit, freeze, thaw and drain sources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from onthedot.cli.bus_lag import open_lag
from onthedot.cli.options import GlobalOptions, duration, store_command
from onthedot.cli.outbox import event_settings
from onthedot.cli.output import Screen, screen, write, write_json
from onthedot.cli.table import Column, number
from onthedot.cli.target import target, with_operations
from onthedot.errors import suggestion
from onthedot.events.bus import BusError
from onthedot.model.agent_names import agent_of
from onthedot.model.limits import rate_text
from onthedot.operations import Operations
from onthedot.operations.humanize import duration_text, plural, suffix
from onthedot.operations.limits import LimitInfo
from onthedot.operations.sources import Pause, SourceInfo, SourceLimit
from onthedot.supervisor.exit_codes import FAILED, TIMEOUT, CommandError

_CODE = "code"  # the value of an option that removes the operator's limit
_MAX_KEYS = 3  # shown in a table: keys with a limit or pause of their own


@store_command("list")
def list_sources(options: GlobalOptions) -> None:
    """Every source: its tasks by state, its run times and workers, and under it its limits and pauses.

    PARKED tasks are due, but the limit of their key has no capacity. Half of the runs took at most P50, 95 % of them at
    most P95. A name with @ is a lane that sources share.
    """
    sources = with_operations(options, lambda operations: operations.sources(run_times=True))
    if options.json:
        write_json({"sources": sources})
        return
    if not sources:
        click.echo("no source has tasks, limits or a worker yet", err=True)
        return
    out = screen(utc=options.utc)
    rows = [[each.name, *map(str, _counts(each)), *run_times_text(each), str(each.workers)] for each in sources]
    columns = (
        Column("SOURCE", least=12), number("READY"), number("PARKED", drop=2), number("SCHED"), number("RUN"),
        number("FAILED"), number("ENDED", drop=1), number("P50"), number("P95"), number("WORKERS"),
    )  # fmt: skip
    out.table(columns, rows, {place: source_notes(out, each) for place, each in enumerate(sources)})


def _counts(each: SourceInfo) -> tuple[int, ...]:
    ended = each.succeeded + each.failed + each.cancelled
    return each.ready, each.parked, each.scheduled, each.running, each.failed, ended


def run_times_text(each: SourceInfo) -> tuple[str, str]:
    """P50 and P95."""
    if each.run_times is None:
        return "-", "-"
    return duration_text(each.run_times.p50), duration_text(each.run_times.p95)


def source_notes(out: Screen, each: SourceInfo) -> list[str]:
    """Its limits, its pauses and its tasks that wait."""
    notes = [limits_text(each)]
    if each.waiting:
        notes.append(f"{plural(each.waiting, 'task waits', 'tasks wait')} for a signal or other tasks")
    if pauses := pauses_text(out, each):
        notes.append(f"paused {pauses}")
    if each.frozen:
        notes.append("frozen: it accepts no new tasks")
    return [note for note in notes if note]


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
    text = "" if pause.key is None else f"for {pause.key} "
    text += "since an unknown time" if pause.since is None else out.when(pause.since)
    return text + suffix(": ", pause.reason)


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
    waits = f"{plural(found.ready + found.parked, 'ready task waits', 'ready tasks wait')}, " if key is None else ""
    goes_on = plural(found.running, "running task goes on", "running tasks go on")
    click.echo(f"paused {_named(source, key)}: {waits}{goes_on}")


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


@store_command()
@click.argument("source")
@click.option("--force", is_flag=True, help="Also a source that no worker or task has yet.")
def freeze(options: GlobalOptions, source: str, force: bool) -> None:
    """Accept no new tasks of SOURCE, in any process, until `source thaw`. Existing tasks run.

    Callers that add one get SourceFrozen within a second. An agent (agent.NAME) receives no more events. Running tasks
    and schedules may still add tasks of it.
    """

    async def work(operations: Operations) -> tuple[bool, SourceInfo]:
        if not force:
            _find(await operations.sources(), source)  # a misspelt name would freeze nothing
        was_frozen = await operations.freeze(source)
        return was_frozen, _find(await operations.sources(), source)

    was_frozen, found = with_operations(options, work)
    if options.json:
        write_json({"source": found, "before": was_frozen})
        return
    if was_frozen:
        click.echo(f"{source} was frozen already")
        return
    click.echo(f"froze {source}: it accepts no new tasks; {plural(_live(found), 'task')} not ended")


@store_command()
@click.argument("source")
def thaw(options: GlobalOptions, source: str) -> None:
    """Accept tasks of SOURCE again."""

    async def work(operations: Operations) -> bool:
        _find(await operations.sources(), source)
        return await operations.thaw(source)

    was_frozen = with_operations(options, work)
    text = f"thawed {source}: it accepts tasks" if was_frozen else f"{source} was not frozen"
    write(text, {"source": source, "thawed": was_frozen}, json=options.json)


@store_command()
@click.argument("source")
@click.option("--outbox", is_flag=True, help="Also wait until no event is unsent.")
@click.option("--bus", metavar="URL", help="Of an agent: first wait for its events on this bus: kafka://…, or store.")
@click.option("--timeout", callback=duration, metavar="TIME", help="Wait at most: 90s, 10m; then exit code 124.")
def drain(options: GlobalOptions, source: str, outbox: bool, bus: str | None, timeout: float | None) -> None:
    """Freeze SOURCE, then wait until none of its tasks is pending, waiting or running.

    An agent (agent.NAME) handles what it has received; more events wait on the bus until `source thaw`. With --bus it
    is frozen when its group has no lag there, which needs publishers that stop.
    """
    try:
        if bus is None:
            with_operations(options, lambda operations: _drain(operations, source, outbox, timeout))
        else:
            _drain_with_bus(options, source, outbox, bus, timeout)
    except TimeoutError as error:
        raise CommandError(str(error), TIMEOUT) from None
    write(f"drained {source}: it is frozen, and no task is left", {"drained": source}, json=options.json)


async def _drain(operations: Operations, source: str, outbox: bool, timeout: float | None) -> None:
    _find(await operations.sources(), source)
    await operations.drain(source, timeout, outbox=outbox)


def _drain_with_bus(options: GlobalOptions, source: str, outbox: bool, bus: str, timeout: float | None) -> None:
    agent = agent_of(source)
    if agent is None:
        raise CommandError(f"{source} is no agent: only agents (agent.NAME) read a bus; leave --bus out")
    kafka = event_settings(options, bus=bus).kafka()
    _, app = target(options)

    async def work(operations: Operations) -> None:
        found = _find(await operations.sources(), source)
        async with open_lag(operations, kafka, f"{app}.{agent}") as lag:
            if found.frozen and (events := await lag()):
                text = f"{plural(events, 'event')} on the bus"
                thaw = f"onthedot source thaw {source}"
                raise CommandError(f"{source} is frozen and receives none of {text}: {thaw}", FAILED)
            await operations.drain(source, timeout, outbox=outbox, lag=lag)

    try:
        with_operations(options, work)
    except BusError as error:
        raise CommandError(str(error), FAILED) from None


def _live(each: SourceInfo) -> int:
    return each.ready + each.parked + each.scheduled + each.running + each.waiting


def _find(sources: Iterable[SourceInfo], name: str) -> SourceInfo:
    known = {each.name: each for each in sources}
    if name not in known:
        raise CommandError(f"no source {name!r} here{suggestion(name, known)}", FAILED)
    return known[name]


def _named(source: str, key: str | None) -> str:
    return source if key is None else f"{source} for {key}"
