"""``onthedot batch``: list, show and cancel batches; freeze, drain and degrade the tasks that make them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import click

from onthedot.cli.options import GlobalOptions, duration, store_command, time_ago
from onthedot.cli.output import Screen, screen, short_ids, write, write_json
from onthedot.cli.table import Column, number
from onthedot.cli.target import with_operations
from onthedot.errors import suggestion
from onthedot.observability.log_format import clean
from onthedot.operations import Operations
from onthedot.operations.batches import BatchDetails, BatchInfo, BatchProgress, ModeInfo, PartInfo
from onthedot.operations.humanize import plural
from onthedot.operations.modes import Mode
from onthedot.supervisor.exit_codes import FAILED, TIMEOUT, CommandError

T = TypeVar("T")

_REPLACED: dict[Mode, str] = {
    "": "",
    "frozen": "; this ended its freeze",
    "degraded": "; this ended its degraded mode",
}
_STATES = ("waiting", "scheduled", "ready", "running", "succeeded", "failed", "cancelled")


@store_command("list")
@click.option("--task", help="Of this task.")
@click.option("--state", type=click.Choice(_STATES), metavar="STATE", help=f"In this state: {', '.join(_STATES)}.")
@click.option("--since", callback=time_ago, metavar="WHEN", help="Added since: 30m, 1h, 7d, or a moment.")
@click.option("--limit", type=click.IntRange(1, 1000), metavar="N", default=20, show_default=True, help="How many.")
def list_batches(
    options: GlobalOptions, task: str | None, state: str | None, since: datetime | None, limit: int
) -> None:
    """Batches, newest first. Tasks that are frozen or degraded have a line below."""

    async def read(operations: Operations) -> tuple[list[BatchInfo], list[ModeInfo]]:
        modes = [each for each in await operations.batches.modes() if task in (None, each.task)]
        return await operations.batches.newest(limit, task, state, since), modes

    batches, modes = with_operations(options, read)
    if options.json:
        write_json({"batches": batches, "modes": modes})
        return
    if batches:
        _print_batches(screen(utc=options.utc), batches)
    else:
        click.echo("no such batch" if task or state or since else "there are no batches", err=True)
    for each in modes:
        effect = "it accepts no new batches" if each.mode == "frozen" else "new batches have one part"
        click.echo(f"{clean(each.task)} is {each.mode}: {effect}")


def _print_batches(out: Screen, batches: Sequence[BatchInfo]) -> None:
    rows = [
        [short, each.state, each.task, each.type or "-", _items(each.progress), _parts(each.progress),
         out.when(each.added), _remark(each)]
        for short, each in zip(short_ids([each.id for each in batches]), batches, strict=True)
    ]  # fmt: skip
    columns = (
        Column("ID"), "STATE", Column("TASK", least=8), Column("TYPE", least=8), number("ITEMS"), number("PARTS"),
        "ADDED", Column("", least=16),
    )  # fmt: skip
    out.table(columns, rows)


@store_command()
@click.argument("id", metavar="ID")
def show(options: GlobalOptions, id: str) -> None:  # noqa: A002 - the name in the help
    """A batch: its items, its parts that have ended, and why it waits.

    NUMBER is the place of a part in the order of the ends, from 1. INDEX is its place in the request, from 0; top-ups
    follow the parts of the request. TASK is the uuid of the part, for `onthedot task show`.
    """
    zone = UTC if options.utc else None

    async def read(operations: Operations) -> BatchDetails:
        return await operations.batch_details(await operations.batches.complete_id(id), zone)

    details = with_operations(options, read)
    if options.json:
        write_json({"batch": details})
        return
    out = screen(utc=options.utc)
    batch = details.batch
    facts = [
        ["id", batch.id],
        ["task", batch.task],
        ["type", batch.type or "-"],
        ["state", batch.state],
        ["items", _items(batch.progress)],
        ["parts", _parts(batch.progress)],
        ["added", out.moment(batch.added)],
    ]
    if batch.degraded:
        facts.append(["degraded", "yes: it has one part"])
    if batch.ended is not None:
        facts.append(["ended", out.moment(batch.ended)])
    if batch.reason:
        facts.append(["reason", clean(batch.reason)])
    if details.waits:
        facts.append(["waits", details.waits])
    out.table(("", Column("", wrap=True)), facts)
    if details.parts:
        click.echo()
        rows = [
            [str(each.number), str(each.index), short, str(each.items), _outcome(each)]
            for short, each in zip(short_ids([each.uuid for each in details.parts]), details.parts, strict=True)
        ]
        columns = (
            number("NUMBER"), number("INDEX"), "TASK", number("ITEMS"), Column("REFUSED OR FAILED", least=16),
        )  # fmt: skip
        out.table(columns, rows)


@store_command()
@click.argument("id", metavar="ID")
@click.option("--reason", default="cancelled", help="Kept with the tasks.")
def cancel(options: GlobalOptions, id: str, reason: str) -> None:  # noqa: A002 - the name in the help
    """Cancel a batch and its parts, and wait up to 5 s for their ends."""

    async def apply(operations: Operations) -> int:
        return await operations.batches.cancel(await operations.batches.complete_id(id), reason)

    count = with_operations(options, apply)
    write(f"cancelled {plural(count, 'task')}", {"cancelled": count}, json=options.json)


@store_command()
@click.argument("task")
def freeze(options: GlobalOptions, task: str) -> None:
    """Accept no new batches of TASK; running ones finish. This ends a degraded mode."""
    before = _apply(options, task, lambda operations: operations.batches.freeze(task))
    text = f"froze {task}: it accepts no new batches{_REPLACED[before]}"
    if before == "frozen":
        text = f"{task} was frozen already"
    _write_mode(options, task, text, "frozen", before)


@store_command()
@click.argument("task")
def thaw(options: GlobalOptions, task: str) -> None:
    """Accept batches of TASK again."""
    before = _apply(options, task, lambda operations: operations.batches.thaw(task))
    text = f"thawed {task}: it accepts batches" if before else f"{task} was not frozen"
    write(text, {"task": task, "thawed": before}, json=options.json)


@store_command()
@click.argument("task")
@click.option("--timeout", callback=duration, metavar="TIME", help="Wait at most: 90s, 10m; then exit code 124.")
def drain(options: GlobalOptions, task: str, timeout: float | None) -> None:
    """Freeze TASK, then wait until all its batches have ended."""
    try:
        before = _apply(options, task, lambda operations: operations.batches.drain(task, timeout))
    except TimeoutError as error:
        raise CommandError(str(error), TIMEOUT) from None
    replaced = _REPLACED["" if before == "frozen" else before]
    write(f"drained {task}: it is frozen, and no batch is left{replaced}", {"drained": task}, json=options.json)


@store_command()
@click.argument("task")
def degrade(options: GlobalOptions, task: str) -> None:
    """Make new batches of TASK in one part, by its fallback. This ends a freeze."""
    before = _apply(options, task, lambda operations: operations.batches.degrade(task))
    text = f"degraded {task}: new batches have one part{_REPLACED[before]}"
    if before == "degraded":
        text = f"{task} was degraded already"
    _write_mode(options, task, text, "degraded", before)


@store_command()
@click.argument("task")
def restore(options: GlobalOptions, task: str) -> None:
    """Split new batches of TASK again."""
    before = _apply(options, task, lambda operations: operations.batches.restore(task))
    text = f"restored {task}: new batches are split" if before else f"{task} was not degraded"
    write(text, {"task": task, "restored": before}, json=options.json)


def _write_mode(options: GlobalOptions, task: str, text: str, mode: Mode, before: Mode) -> None:
    replaced = "" if before == mode else before
    answer = {"task": task, "mode": mode, "before": before == mode, "replaced": replaced}
    write(text, answer, json=options.json)


def _apply(options: GlobalOptions, task: str, change: Callable[[Operations], Awaitable[T]]) -> T:
    """Refuse a task without batches: the operator would believe that it is changed."""

    async def apply(operations: Operations) -> T:
        known = await operations.batches.tasks()
        if task not in known:
            raise CommandError(f"no task {task!r} with batches here{suggestion(task, known)}", FAILED)
        return await change(operations)

    return with_operations(options, apply)


def _items(progress: BatchProgress) -> str:
    return f"{progress.items:,} of {progress.count:,}"


def _parts(progress: BatchProgress) -> str:
    failed = f", {progress.failed:,} failed" if progress.failed else ""
    return f"{progress.done:,} of {progress.total:,}{failed}"


def _remark(batch: BatchInfo) -> str:
    return " · ".join(filter(None, ["degraded" if batch.degraded else "", clean(batch.reason)]))


def _outcome(part: PartInfo) -> str:
    refused = [f"{reason}: {count}" for reason, count in part.refused.items()]
    return ", ".join([clean(each) for each in [*refused, part.error] if each]) or "-"
