"""``onthedot batch``: list, show and cancel batches; freeze, drain and degrade the tasks that make them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import click

from onthedot.cli.options import GlobalOptions, duration, store_command, time_ago
from onthedot.cli.output import screen, short_ids, write, write_json
from onthedot.cli.table import Column, number
from onthedot.cli.target import with_operations
from onthedot.errors import suggestion
from onthedot.observability.log_format import clean
from onthedot.operations import Operations
from onthedot.operations.batches import BatchDetails, BatchProgress, PartInfo
from onthedot.operations.humanize import plural
from onthedot.supervisor.exit_codes import FAILED, TIMEOUT, CommandError

_STATES = ("waiting", "scheduled", "ready", "running", "succeeded", "failed", "cancelled")


@store_command("list")
@click.option("--task", help="Of this task.")
@click.option("--state", type=click.Choice(_STATES), metavar="STATE", help=f"In this state: {', '.join(_STATES)}.")
@click.option("--since", callback=time_ago, metavar="WHEN", help="Added since: 30m, 1h, 7d, or a moment.")
@click.option("--limit", type=click.IntRange(1, 1000), metavar="N", default=20, show_default=True, help="How many.")
def list_batches(
    options: GlobalOptions, task: str | None, state: str | None, since: datetime | None, limit: int
) -> None:
    """Batches, newest first."""
    batches = with_operations(options, lambda operations: operations.batches.newest(limit, task, state, since))
    if options.json:
        write_json({"batches": batches})
        return
    if not batches:
        click.echo("no such batch" if task or state or since else "there are no batches", err=True)
        return
    out = screen(utc=options.utc)
    rows = [
        [short, each.state, each.task, each.type or "-", _items(each.progress), _parts(each.progress),
         out.when(each.added)]
        for short, each in zip(short_ids([each.id for each in batches]), batches, strict=True)
    ]  # fmt: skip
    columns = (
        Column("ID"), "STATE", Column("TASK", least=8), Column("TYPE", least=8), number("ITEMS"), number("PARTS"),
        "ADDED",
    )  # fmt: skip
    out.table(columns, rows)


@store_command()
@click.argument("id", metavar="ID")
def show(options: GlobalOptions, id: str) -> None:  # noqa: A002 - the name in the help
    """A batch: its items, its parts that have ended, and why it waits."""
    zone = UTC if options.utc else None

    async def read(operations: Operations) -> BatchDetails:
        return await operations.batch_details(await operations.tasks.complete_uuid(id), zone)

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
    if batch.ended is not None:
        facts.append(["ended", out.moment(batch.ended)])
    if details.waits:
        facts.append(["waits", details.waits])
    out.table(("", Column("", wrap=True)), facts)
    if details.parts:
        click.echo()
        rows = [[str(each.number), str(each.index), str(each.items), _outcome(each)] for each in details.parts]
        out.table((number("NUMBER"), number("INDEX"), number("ITEMS"), Column("REFUSED OR FAILED", least=16)), rows)


@store_command()
@click.argument("id", metavar="ID")
@click.option("--reason", default="cancelled", help="Kept with the tasks.")
def cancel(options: GlobalOptions, id: str, reason: str) -> None:  # noqa: A002 - the name in the help
    """Cancel a batch and its parts, and wait up to 5 s for their ends."""

    async def apply(operations: Operations) -> int:
        return await operations.batches.cancel(await operations.tasks.complete_uuid(id), reason)

    count = with_operations(options, apply)
    write(f"cancelled {plural(count, 'task')}", {"cancelled": count}, json=options.json)


@store_command()
@click.argument("task")
def freeze(options: GlobalOptions, task: str) -> None:
    """Accept no new batches of TASK; running ones finish."""
    before = _apply(options, task, lambda operations: operations.batches.freeze(task))
    text = f"{task} was frozen already" if before else f"froze {task}: it accepts no new batches"
    write(text, {"task": task, "mode": "frozen", "before": before}, json=options.json)


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
        _apply(options, task, lambda operations: operations.batches.drain(task, timeout))
    except TimeoutError as error:
        raise CommandError(str(error), TIMEOUT) from None
    write(f"drained {task}: it is frozen, and no batch is left", {"drained": task}, json=options.json)


@store_command()
@click.argument("task")
def degrade(options: GlobalOptions, task: str) -> None:
    """Make new batches of TASK in one part, by its fallback."""
    before = _apply(options, task, lambda operations: operations.batches.degrade(task))
    text = f"{task} was degraded already" if before else f"degraded {task}: new batches have one part"
    write(text, {"task": task, "mode": "degraded", "before": before}, json=options.json)


@store_command()
@click.argument("task")
def restore(options: GlobalOptions, task: str) -> None:
    """Split new batches of TASK again."""
    before = _apply(options, task, lambda operations: operations.batches.restore(task))
    text = f"restored {task}: new batches are split" if before else f"{task} was not degraded"
    write(text, {"task": task, "restored": before}, json=options.json)


def _apply(options: GlobalOptions, task: str, change: Callable[[Operations], Awaitable[bool | None]]) -> bool:
    """Refuse a task without batches: the operator would believe that it is changed."""

    async def apply(operations: Operations) -> bool:
        known = await operations.batches.tasks()
        if task not in known:
            raise CommandError(f"no task {task!r} with batches here{suggestion(task, known)}", FAILED)
        return bool(await change(operations))

    return with_operations(options, apply)


def _items(progress: BatchProgress) -> str:
    return f"{progress.items:,} of {progress.count:,}"


def _parts(progress: BatchProgress) -> str:
    failed = f", {progress.failed:,} failed" if progress.failed else ""
    return f"{progress.done:,} of {progress.total:,}{failed}"


def _outcome(part: PartInfo) -> str:
    refused = [f"{count} {reason}" for reason, count in part.refused.items()]
    return ", ".join([clean(each) for each in [*refused, part.error] if each]) or "-"
