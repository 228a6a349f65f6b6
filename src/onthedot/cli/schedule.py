"""``onthedot schedule``: list, plan, pause, resume, run and delete schedules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import click

from onthedot.cli.options import GlobalOptions, moment, store_command
from onthedot.cli.output import Screen, screen, write, write_json
from onthedot.cli.table import Column, number
from onthedot.cli.target import with_operations, with_operations_or_code
from onthedot.errors import BadSchedule
from onthedot.observability.log_format import clean
from onthedot.operations.humanize import plural
from onthedot.operations.schedule_info import NO_WORKER, ScheduleInfo
from onthedot.operations.schedule_preview import PlannedRun
from onthedot.operations.schedules import ScheduleOperations
from onthedot.supervisor.exit_codes import FAILED, CommandError

T = TypeVar("T")

_NO_SCHEDULE = "there is no schedule; a worker stores those that code declares when it starts"
_MARKS = {
    "": "", "gap": "clocks go forward: its hour is left out", "first": "clocks go back: the 1st time round",
    "second": "clocks go back: the 2nd time round",
}  # fmt: skip


def _with_schedules(options: GlobalOptions, work: Callable[[ScheduleOperations], Awaitable[T]]) -> T:
    return with_operations(options, lambda operations: _checked(work(operations.schedules)))


async def _checked(work: Awaitable[T]) -> T:
    try:
        return await work
    except BadSchedule as error:  # the usage is right, so exit code 1
        raise CommandError(str(error), FAILED) from None


def _state(info: ScheduleInfo) -> str:
    if not info.enabled:
        return "paused"
    if info.orphan and not _lacks_workers(info):
        return "orphan"
    if info.next_run is None:
        return "over"
    return "enabled"


def _lacks_workers(info: ScheduleInfo) -> bool:
    """No worker is running at all, as in the seconds of a deployment."""
    return info.reason.endswith(NO_WORKER)


def _own_reason(info: ScheduleInfo) -> str:
    """Without what holds for every schedule."""
    return info.reason.removesuffix(NO_WORKER).removesuffix("; ")


@store_command("list")
def list_schedules(options: GlobalOptions) -> None:
    """All schedules: those that code declares, and those that were put at run time (data)."""
    infos = _with_schedules(options, lambda schedules: schedules.list())
    if options.json:
        write_json({"schedules": infos})
        return
    if not infos:
        click.echo(_NO_SCHEDULE, err=True)
        return
    out = screen(utc=options.utc)
    rows = [
        [info.name, _state(info), out.when(info.next_run if info.enabled else None), out.when(info.last_run),
         str(info.run_count), str(sum(info.skipped.values())), info.owner, info.rule]
        for info in infos
    ]  # fmt: skip
    columns = (
        Column("NAME", least=12), "STATE", "NEXT", Column("LAST", drop=3), number("RUNS", drop=2),
        number("SKIPPED", drop=4), Column("OWNER", drop=5), Column("RULE", least=12),
    )  # fmt: skip
    notes = {place: [_own_reason(info)] for place, info in enumerate(infos) if _own_reason(info)}
    out.table(columns, rows, notes)
    if any(map(_lacks_workers, infos)):
        click.echo("no worker is running, so nothing fires until one starts", err=True)


def _until(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    return None if value is None else moment(value)


@store_command()
@click.argument("name", required=False)
@click.option(
    "--hours",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    default=24.0,
    show_default=True,
    help="Hours to plan.",
)
@click.option("--until", callback=_until, metavar="MOMENT", help="Instead of --hours: 2026-11-16T09:00.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), metavar="N", default=20, show_default=True, help="Runs shown."
)
def plan(options: GlobalOptions, /, name: str | None, **span: Any) -> None:
    """The next runs of NAME, or of all that fire; if there are many, also their number in each hour of the next 24.

    In local time, and in the zone of the schedule; changes of the clocks are marked. With -A as if a worker had started
    with your code; no store is needed.
    """
    found = with_operations_or_code(
        options, lambda operations: _checked(_planned(operations.schedules, name, span, options.module is not None))
    )
    if options.json:
        write_json(
            {
                "runs": [_as_json(run) for run in found.runs],
                "load": [{"hour": hour, "runs": count} for hour, count in found.load],
                "next": [_as_json(run) for run in found.next],
            }
        )
        return
    out = screen(utc=options.utc)
    if found.warning:
        click.echo(f"{clean(found.warning)}; what follows is what it would do", err=True)
    if not found.next:
        click.echo("no schedule will run" if found.is_any else _NO_SCHEDULE, err=True)
        return
    if found.runs:
        _print_runs(out, found.runs)
    else:
        click.echo(f"nothing runs {_span_text(out, span)}; the next runs:", err=True)
        _print_runs(out, found.next)
    if len(found.runs) == span["limit"]:
        click.echo(f"there may be more: --limit {span['limit'] * 10}", err=True)
        _draw(out, found.load)


class _Plan(NamedTuple):
    runs: Sequence[PlannedRun]
    load: Sequence[tuple[datetime, int]]
    next: Sequence[PlannedRun]  # of each schedule
    is_any: bool  # there are schedules
    warning: str = ""


async def _planned(schedules: ScheduleOperations, name: str | None, span: dict[str, Any], from_code: bool) -> _Plan:
    infos = await schedules.list()
    coming = await schedules.next_runs(name, from_code=from_code)
    warning = ""
    for info in infos:
        if info.name == name and not (from_code and info.enabled):
            warning = _warning(info)
    return _Plan(
        await schedules.plan(name, **span, from_code=from_code),
        await schedules.load(name, from_code=from_code),
        coming,
        bool(infos or coming),
        warning,
    )


def _as_json(run: PlannedRun) -> dict[str, object]:
    """`wall` keeps the zone of the schedule."""
    return {"name": run.name, "at": run.at, "wall": run.wall.isoformat(), "due": run.due, "mark": run.mark}


def _span_text(out: Screen, span: dict[str, Any]) -> str:
    if span["until"] is not None:
        return f"until {out.moment(span['until'])}"
    return f"within {span['hours']:g} h"


def _print_runs(out: Screen, runs: Sequence[PlannedRun]) -> None:
    rows = [[out.moment(run.at), _wall(run.wall), run.name] for run in runs]
    notes = {place: [_MARKS[run.mark]] for place, run in enumerate(runs) if run.mark}
    columns = ("UTC" if out.utc else "LOCAL TIME", "IN ITS ZONE", Column("SCHEDULE", least=12))
    out.table(columns, rows, notes)


def _warning(info: ScheduleInfo) -> str:
    """Why the schedule does not fire now."""
    state = _state(info)
    if state in ("enabled", "over"):
        return ""
    if reason := _own_reason(info):
        state += f" ({reason})"
    return f"{info.name}: {state}"


def _wall(at: datetime) -> str:
    return f"{at:%a %H:%M:%S} {'UTC' if at.tzinfo is UTC else at.tzinfo}"


def _draw(out: Screen, load: Sequence[tuple[datetime, int]]) -> None:
    most = max(count for _, count in load)
    if not most:
        return
    if len({count for _, count in load[1:]}) == 1:  # the current hour is not whole
        out.print(f"\n{plural(most, 'run')} per hour")
        return
    block = "█" if out.live else "#"
    out.title("runs per hour")
    for hour, count in load:
        line = f"{out.moment(hour)[11:16]}"
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
        text += "; next never" if info.next_run is None else f"; next {screen(utc=options.utc).moment(info.next_run)}"
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
