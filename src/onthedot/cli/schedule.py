"""``onthedot schedule``: list, plan, pause, resume, run and delete schedules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from onthedot.cli.options import GlobalOptions, moment, store_command
from onthedot.cli.output import Screen, screen, write, write_json
from onthedot.cli.target import with_operations
from onthedot.errors import BadSchedule
from onthedot.observability.log_format import clean
from onthedot.operations.schedule_preview import PlannedRun
from onthedot.operations.schedules import ScheduleInfo, ScheduleOperations
from onthedot.supervisor.exit_codes import FAILED, CommandError

T = TypeVar("T")

_MARKS = {
    "": "", "gap": "clocks go forward: its hour is left out", "first": "clocks go back: the 1st time round",
    "second": "clocks go back: the 2nd time round",
}  # fmt: skip


def _with_schedules(options: GlobalOptions, work: Callable[[ScheduleOperations], Awaitable[T]]) -> T:
    try:
        return with_operations(options, lambda operations: work(operations.schedules))
    except BadSchedule as error:  # the usage is right, so exit code 1
        raise CommandError(str(error), FAILED) from None


def _state(info: ScheduleInfo) -> str:
    if not info.enabled:
        return "paused"
    if info.orphan:
        return "orphan"
    if info.next_run is None:
        return "over"
    return "enabled"


@store_command("list")
def list_schedules(options: GlobalOptions) -> None:
    """All schedules: those that code declares, and those that were put at run time (data)."""
    infos = _with_schedules(options, lambda schedules: schedules.list())
    if options.json:
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


@store_command()
@click.argument("name", required=False)
@click.option(
    "--hours", type=click.FloatRange(0, min_open=True), default=24.0, show_default=True, help="Hours to plan."
)
@click.option("--until", callback=_until, metavar="MOMENT", help="Instead of --hours: 2026-11-16T09:00.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="Runs shown.")
def plan(options: GlobalOptions, /, name: str | None, **span: Any) -> None:
    """The next runs of NAME, or of all that fire; and how many there are in each hour of the next 24.

    In wall time and in UTC; changes of the clocks are marked.
    """

    async def work(schedules: ScheduleOperations) -> tuple[Sequence[PlannedRun], Sequence[tuple[datetime, int]], str]:
        warning = ""
        if name is not None:
            warning = _warning(await schedules.get(name))
        return await schedules.plan(name, **span), await schedules.load(name), warning

    runs, load, warning = _with_schedules(options, work)
    if options.json:
        write_json({"runs": runs, "load": [{"hour": hour, "runs": count} for hour, count in load]})
        return
    out = screen()
    if warning:
        click.echo(f"{clean(warning)}; what follows is what it would do", err=True)
    if not runs:
        click.echo("nothing runs until then", err=True)
        return
    rows = [[_wall(run.wall), _at(run.at), run.name, _MARKS[run.mark]] for run in runs]
    out.table(("WALL TIME", "UTC", "SCHEDULE", ""), rows)
    if len(runs) == span["limit"]:
        click.echo(f"there may be more: --limit {span['limit'] * 10}", err=True)
    _draw(out, load)


def _warning(info: ScheduleInfo) -> str:
    """Why the schedule does not fire now."""
    state = _state(info)
    if state in ("enabled", "over"):
        return ""
    if info.reason:
        state += f" ({info.reason})"
    return f"{info.name}: {state}"


def _wall(at: datetime) -> str:
    return f"{at:%a %Y-%m-%d %H:%M:%S} {'UTC' if at.tzinfo is UTC else at.tzinfo}"


def _at(at: datetime) -> str:
    return at.isoformat(" ", "seconds").removesuffix("+00:00")


def _draw(out: Screen, load: Sequence[tuple[datetime, int]]) -> None:
    most = max(count for _, count in load)
    if not most:
        return
    block = "█" if out.live else "#"
    out.title("runs per hour (UTC)")
    for hour, count in load:
        line = f"{hour:%H:%M}"
        if count:
            line += f"  [cyan]{block * max(1, round(40 * count / most))}[/] {count}"
        out.print(line)


@store_command()
@click.argument("name")
@click.option("--reason", default="", help="Shown by `schedule list`.")
def pause(options: GlobalOptions, name: str, reason: str) -> None:
    """Pause NAME until `resume`, also after a restart or a deploy."""
    _show(options, _with_schedules(options, lambda schedules: schedules.pause(name, reason)), "paused")


@store_command()
@click.argument("name")
def resume(options: GlobalOptions, name: str) -> None:
    """Resume NAME with its next window; windows that passed meanwhile are not caught up."""
    _show(options, _with_schedules(options, lambda schedules: schedules.resume(name)), "resumed")


def _show(options: GlobalOptions, info: ScheduleInfo, verb: str) -> None:
    text = f"{verb} {info.name}"
    if info.enabled:
        text += "; next never" if info.next_run is None else f"; next {_at(info.next_run)}"
    write(text, info, json=options.json)


@store_command()
@click.argument("name")
def run(options: GlobalOptions, name: str) -> None:
    """Run NAME now; its next run stays as it is. Prints the uuid of the task."""
    ran = _with_schedules(options, lambda schedules: schedules.run(name))
    if not ran.fresh:
        raise CommandError(f"schedule {name} runs already, and its overlap forbids another: {ran.uuid}", FAILED)
    write(ran.uuid, {"uuid": ran.uuid, "source": ran.source}, json=options.json)


@store_command()
@click.argument("name")
def delete(options: GlobalOptions, name: str) -> None:
    """Delete NAME: one that was put at run time, or an orphan. Tasks that it has added stay."""
    _with_schedules(options, lambda schedules: schedules.delete(name))
    write(f"deleted {name}", {"deleted": name}, json=options.json)
