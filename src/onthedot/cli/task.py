"""``onthedot task``: show, explain, cancel and retry tasks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from onthedot.cli.bulk import BulkAction, bulk_options, run_bulk
from onthedot.cli.options import GlobalOptions, filters, store_command, task_filter
from onthedot.cli.output import Screen, screen, write_json
from onthedot.cli.target import with_operations
from onthedot.codec.plain_json import json_value
from onthedot.model.task import TaskInfo
from onthedot.observability.log_format import clean, clean_lines
from onthedot.operations import Operations
from onthedot.operations.explain import Explanation, ExplanationReason
from onthedot.operations.task_queries import TaskFilter, TaskPage

_MAX_RESULT = 2000  # characters shown
_MAX_ARGUMENTS = 60
_ALIVE = ("scheduled", "ready", "running")
_NO_RESULT = {"expired": "is not kept any more", "not_stored": "could not be stored; the worker's log says why"}


@store_command("list")
@filters
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Tasks shown.")
@click.option("--cursor", help="Continue where the last page ended.")
def list_tasks(options: GlobalOptions, /, **given: Any) -> None:
    """Tasks, newest first."""
    where = task_filter(given)
    filtered = where.keys() > {"limit"}
    page = with_operations(options, lambda operations: _full_page(operations, where))
    if options.json:
        write_json({"tasks": [info.to_dict() for info in page], "cursor": page.cursor})
        return
    out = screen()
    rows = [
        [info.uuid, info.state.value, info.source, str(info.attempt), out.when(info.added_at), _remark(info)]
        for info in page
    ]
    if rows:
        out.table(("UUID", "STATE", "SOURCE", "ATTEMPT", "ADDED", ""), rows)
    else:
        click.echo("no such task" if filtered else "there are no tasks", err=True)
    if page.cursor is not None:
        click.echo(f"there may be more: --cursor {page.cursor}", err=True)


async def _full_page(operations: Operations, where: TaskFilter) -> TaskPage:
    """Read on until `limit` tasks are found: one call of `find` looks at a bounded number of tasks only."""
    wanted = where.get("limit", 0)
    page = await operations.find(**where)
    while page.cursor is not None and len(page) < wanted:
        where["limit"] = wanted - len(page)
        where["cursor"] = page.cursor
        more = await operations.find(**where)
        page = TaskPage(page.tasks + more.tasks, more.cursor)
    return page


def _remark(info: TaskInfo) -> str:
    if info.error:
        return f"{info.error.type}: {info.error.message}"[:80]
    if info.reason:
        return info.reason
    text = info.label or ", ".join(f"{name}={value!r}" for name, value in info.args.items())
    if len(text) > _MAX_ARGUMENTS:
        return f"{text[: _MAX_ARGUMENTS - 1]}…"
    return text


@store_command()
@click.argument("uuid")
def show(options: GlobalOptions, uuid: str) -> None:
    """All that is known about a task; the first characters of its uuid are enough."""
    info = with_operations(options, lambda operations: _get(operations, uuid))
    if options.json:
        write_json(info.to_dict())
        return
    out = screen()
    attempts = f"{info.attempt} ({info.retries} retries, {info.crashes} crashes)"
    facts: list[tuple[str, object]] = [
        ("uuid", info.uuid), ("source", info.source), ("state", info.state.value),
        ("", "cancel wanted" if info.cancel_wanted else ""), ("label", info.label), ("args", _json(info.args)),
        ("attempt", attempts), ("priority", info.priority), ("added", out.when(info.added_at)),
        ("due", out.when(info.schedule_at)), ("started", out.when(info.started_at)),
        ("ended", out.when(info.ended_at)), ("worker", info.worker), ("unique", info.unique), ("lane", info.lane),
        ("tags", ", ".join(info.tags)), ("metadata", _json(info.metadata) if info.metadata else ""),
        ("progress", "" if info.progress is None else "{:g} of {:g}".format(*info.progress)), ("reason", info.reason),
    ]  # fmt: skip
    out.table(("", ""), [[name, str(value)] for name, value in facts if value not in ("", None, "-")])
    if info.result_status == "stored":
        text = info.result if isinstance(info.result, str) else _json(info.result)
        click.echo(f"\nresult:\n{clean_lines(text[:_MAX_RESULT])}")
        if len(text) > _MAX_RESULT:
            click.echo(f"… of {len(text):,} characters; --json has all of them")
    elif info.result_status in _NO_RESULT:
        click.echo(f"\nit succeeded, but its result {_NO_RESULT[info.result_status]}")
    for error in {error.attempt: error for error in (*info.errors, info.error) if error}.values():
        click.echo(f"\nattempt {error.attempt}: {clean(error.type)}: {clean(error.message)}")
        if error.traceback:
            out.code(clean_lines(error.traceback), "pytb")


async def _get(operations: Operations, uuid: str) -> TaskInfo:
    return await operations.get(await operations.tasks.complete_uuid(uuid))


def _json(value: object) -> str:
    return msgspec.json.encode(json_value(value)).decode()


@store_command()
@click.argument("uuid")
def explain(options: GlobalOptions, uuid: str) -> None:
    """Why a task is not running, and when it may; the first characters of its uuid are enough.

    By the rules of the claim; the store is not changed.
    """
    found = with_operations(options, lambda operations: _explain(operations, uuid))
    if options.json:
        write_json(found)
        return
    out = screen()
    reasons: list[Explanation | ExplanationReason] = [found, *found.also]
    click.echo(f"{found.uuid}  {clean(found.source)}  {found.state.value}\n")
    out.table(("", ""), [[each.reason, f"{each.text}{_until(out, each.until)}"] for each in reasons])
    for each in reasons:
        if not each.by or each.by[0].uuid == found.uuid:
            continue
        title = each.reason
        if (more := each.by_count - len(each.by)) > 0:
            title += f", these and {more} more"
        click.echo(f"\n{title}:")
        rows = [[by.uuid or "-", by.worker or "-", by.where or "-", out.when(by.since)] for by in each.by]
        out.table(("TASK", "WORKER", "WHERE", "SINCE"), rows)
    if found.estimated_start is not None:
        click.echo(f"\nstarts about {out.when(found.estimated_start)}")


async def _explain(operations: Operations, uuid: str) -> Explanation:
    return await operations.explain(await operations.tasks.complete_uuid(uuid))


def _until(out: Screen, until: datetime | None) -> str:
    """On a terminal: how long it takes until then."""
    if until is None or not out.live:
        return ""
    return f" ({out.when(until)})"


@store_command()
@bulk_options
def cancel(options: GlobalOptions, /, **given: Any) -> None:
    """Cancel the tasks with these uuids (the first characters are enough), or all that match.

    Running tasks are cancelled by their workers.
    """

    async def apply(operations: Operations, uuids: Sequence[str]) -> int:
        return await operations.cancel(*uuids)

    run_bulk(options, given, BulkAction("cancel", "cancelled", _ALIVE, apply))


@store_command()
@bulk_options
def retry(options: GlobalOptions, /, **given: Any) -> None:
    """Run tasks again: those with these uuids (the first characters are enough), or all failed ones that match."""

    async def apply(operations: Operations, uuids: Sequence[str]) -> int:
        return len(await operations.retry(*uuids))

    run_bulk(options, given, BulkAction("retry", "retried", ("failed",), apply))
