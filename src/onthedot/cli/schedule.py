"""``onthedot schedule``: what runs by itself, when next, and how to stop it for a while."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from onthedot.cli.options import CliError, GlobalOptions, moment, shared
from onthedot.cli.output import Screen, clean, screen, write_json
from onthedot.cli.target import with_operations
from onthedot.errors import BadSchedule
from onthedot.operations.schedule_preview import PlannedRun
from onthedot.operations.schedules import ScheduleInfo, ScheduleOperations

T = TypeVar("T")

_MARKS = {
    "": "", "gap": "clocks go forward: its hour is left out", "first": "clocks go back: the 1st time round",
    "second": "clocks go back: the 2nd time round",
}  # fmt: skip


def _ask(said: GlobalOptions, work: Callable[[ScheduleOperations], Awaitable[T]]) -> T:
    try:
        return with_operations(said, lambda operations: work(operations.schedules))
    except BadSchedule as error:  # the command was right: the answer is no
        raise CliError(str(error), 1) from None


def _state(info: ScheduleInfo) -> str:
    if not info.enabled:
        return "paused"
    if info.orphan:
        return "orphan"
    return "over" if info.next_run is None else "enabled"


@click.command("list")
@shared("store", "name", "app", "json")
@click.pass_obj
def listed(said: GlobalOptions) -> None:
    """All schedules, whether code declares them or they were put at run time (data)."""
    infos = _ask(said, lambda schedules: schedules.list())
    if said.json:
        write_json({"schedules": infos})
        return
    if not infos:
        click.echo("no schedule; a worker stores those that code declares when it starts", err=True)
        return
    out = screen()
    rows = [
        [info.name, _state(info), out.when(info.next_run if info.enabled else None), out.when(info.last_run),
         str(info.run_count), str(sum(info.skipped.values())), info.owner, info.rule, info.reason]
        for info in infos
    ]  # fmt: skip
    out.table(("NAME", "STATE", "NEXT", "LAST", "RUNS", "SKIPPED", "OWNER", "RULE", ""), rows)


def _until(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    return None if value is None else moment(value)


@click.command()
@click.argument("name", required=False)
@click.option("--hours", type=click.FloatRange(0, min_open=True), default=24.0, show_default=True, help="How far.")
@click.option("--until", callback=_until, metavar="MOMENT", help="How far, instead of --hours: 2026-11-16T09:00.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="Runs shown.")
@shared("store", "name", "app", "json")
@click.pass_obj
def plan(said: GlobalOptions, /, name: str | None, **span: Any) -> None:
    """The next runs of NAME, or of all that fire; and how many there are in each hour of the next 24.

    In wall time and in UTC: where clocks change, it says so.
    """

    async def work(schedules: ScheduleOperations) -> tuple[Sequence[PlannedRun], Sequence[tuple[datetime, int]], str]:
        info = None if name is None else await schedules.get(name)
        stands = "" if info is None or _state(info) in ("enabled", "over") else f"{name}: {_state(info)}"
        reason = f" ({info.reason})" if info is not None and info.reason else ""
        return await schedules.plan(name, **span), await schedules.load(name), stands and stands + reason

    runs, load, stands = _ask(said, work)
    if said.json:
        write_json({"runs": runs, "load": [{"hour": hour, "runs": count} for hour, count in load]})
        return
    out = screen()
    if stands:
        click.echo(f"{clean(stands)}; what follows is what it would do", err=True)
    if not runs:
        click.echo("nothing runs until then", err=True)
        return
    rows = [[_wall(run.wall), _at(run.at), run.name, _MARKS[run.mark]] for run in runs]
    out.table(("WALL TIME", "UTC", "SCHEDULE", ""), rows)
    if len(runs) == span["limit"]:
        click.echo(f"there may be more: --limit {span['limit'] * 10}", err=True)
    _draw(out, load)


def _wall(at: datetime) -> str:
    return f"{at:%a %Y-%m-%d %H:%M:%S} {'UTC' if at.tzinfo is UTC else at.tzinfo}"


def _at(at: datetime) -> str:
    return at.isoformat(" ", "seconds").removesuffix("+00:00")


def _draw(out: Screen, load: Sequence[tuple[datetime, int]]) -> None:
    most, full = max(count for _, count in load), "█" if out.live else "#"
    if not most:
        return
    out.title("runs an hour (UTC)")
    for hour, count in load:
        bar = f"  [cyan]{full * max(1, round(40 * count / most))}[/] {count}" if count else ""
        out.print(f"{hour:%H:%M}{bar}")


@click.command()
@click.argument("name")
@click.option("--reason", default="", help="Why: shown by `schedule list`.")
@shared("store", "name", "app", "json")
@click.pass_obj
def pause(said: GlobalOptions, name: str, reason: str) -> None:
    """NAME does not fire until `resume`, also after a restart or a deploy."""
    _show(said, _ask(said, lambda schedules: schedules.pause(name, reason)), "paused")


@click.command()
@click.argument("name")
@shared("store", "name", "app", "json")
@click.pass_obj
def resume(said: GlobalOptions, name: str) -> None:
    """NAME goes on with its next window; those that passed meanwhile are not caught up."""
    _show(said, _ask(said, lambda schedules: schedules.resume(name)), "resumed")


def _show(said: GlobalOptions, info: ScheduleInfo, verb: str) -> None:
    if said.json:
        write_json(info)
        return
    coming = "" if not info.enabled else f"; next {'never' if info.next_run is None else _at(info.next_run)}"
    click.echo(f"{verb} {info.name}{coming}")


@click.command()
@click.argument("name")
@shared("store", "name", "app", "json")
@click.pass_obj
def run(said: GlobalOptions, name: str) -> None:
    """Run NAME now; its next run stays. Prints the uuid of the task."""
    ran = _ask(said, lambda schedules: schedules.run(name))
    if not ran.fresh:
        raise CliError(f"schedule {name} runs already, and its overlap forbids another: {ran.uuid}", 1)
    if said.json:
        write_json({"uuid": ran.uuid, "source": ran.source})
    else:
        click.echo(ran.uuid)


@click.command()
@click.argument("name")
@shared("store", "name", "app", "json")
@click.pass_obj
def delete(said: GlobalOptions, name: str) -> None:
    """Remove NAME: one that was put at run time, or an orphan. What it has added runs."""
    _ask(said, lambda schedules: schedules.delete(name))
    if said.json:
        write_json({"deleted": name})
    else:
        click.echo(f"deleted {name}")
