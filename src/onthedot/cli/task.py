"""``onthedot task``: look at tasks, end them, run them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from onthedot import TaskError
from onthedot.cli.bulk import bulk, run_bulk
from onthedot.cli.options import GlobalOptions, as_where, filters, shared
from onthedot.cli.output import clean, screen, write_json
from onthedot.cli.target import with_operations
from onthedot.model.task import TaskInfo, TaskState
from onthedot.operations import Operations
from onthedot.operations.task_queries import TaskFilter, TaskPage

_LONG = 2000  # characters of a result
_LIVE = ("scheduled", "ready", "running")


def shown_arguments(info: TaskInfo) -> str:
    text = info.label or ", ".join(f"{name}={value!r}" for name, value in info.args.items())
    return text if len(text) <= 60 else f"{text[:59]}…"


@click.command("list")
@filters
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@click.option("--cursor", help="Go on where the last page ended.")
@shared("store", "name", "app", "json")
@click.pass_obj
def listed(said: GlobalOptions, /, **given: Any) -> None:
    """Tasks, newest first."""
    found = with_operations(said, lambda operations: _page(operations, as_where(given)))
    if said.json:
        write_json({"tasks": found.tasks, "cursor": found.cursor})
        return
    out = screen()
    rows = [
        [info.uuid, info.state.value, info.source, str(info.attempt), out.when(info.added_at),
         f"{info.error.type}: {info.error.message}"[:80] if info.error else info.reason or shown_arguments(info)]
        for info in found
    ]  # fmt: skip
    if rows:
        out.table(("UUID", "STATE", "SOURCE", "ATTEMPT", "ADDED", ""), rows)
    else:
        click.echo("no such task" if as_where(given).keys() > {"limit"} else "there are no tasks", err=True)
    if found.cursor is not None:
        click.echo(f"there may be more: --cursor {found.cursor}", err=True)


async def _page(operations: Operations, where: TaskFilter) -> TaskPage:
    """A full one, if there are so many: who asks for the needle wants all of the haystack looked through."""
    wanted, found = where.get("limit", 0), await operations.find(**where)
    while found.cursor is not None and len(found) < wanted:
        where["limit"], where["cursor"] = wanted - len(found), found.cursor
        more = await operations.find(**where)
        found = TaskPage(found.tasks + more.tasks, more.cursor)
    return found


@click.command()
@click.argument("uuid")
@shared("store", "name", "app", "json")
@click.pass_obj
def show(said: GlobalOptions, uuid: str) -> None:
    """All that is known of a task; a beginning of its uuid is enough."""
    info, result = with_operations(said, lambda operations: _with_result(operations, uuid))
    if said.json:
        write_json(msgspec.to_builtins(info, enc_hook=str) | result)
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
    for name, value in result.items():
        text = value if isinstance(value, str) else _json(value)
        cut = "" if len(text) <= _LONG else f"\n… of {len(text):,} characters; --json has all of them"
        click.echo(f"\n{name}:\n{_tamed(text[:_LONG])}{cut}")
    for error in {error.attempt: error for error in (*info.errors, info.error) if error}.values():
        click.echo(f"\nattempt {error.attempt}: {error.type}: {clean(error.message)}")
        if error.traceback:
            out.code(_tamed(error.traceback), "pytb")


async def _with_result(operations: Operations, uuid: str) -> tuple[TaskInfo, dict[str, object]]:
    """And what it returned, or why that cannot be shown."""
    info = await operations.get(uuid)
    if info.state is not TaskState.SUCCEEDED:
        return info, {}
    try:
        return info, {"result": await operations.result(info.uuid)}
    except TaskError as error:
        return info, {"result_missing": str(error)}


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _tamed(text: str) -> str:
    """Line by line, as far as they are indented."""
    lines = text.splitlines()
    return "\n".join(line[: len(line) - len(line.lstrip(" "))] + clean(line) for line in lines)


@click.command()
@bulk
def cancel(said: GlobalOptions, /, **given: Any) -> None:
    """End tasks: those with these uuids (a beginning is enough), or all that match. Running ones are told."""

    async def act(operations: Operations, uuids: Sequence[str]) -> int:
        return await operations.cancel(*uuids)

    run_bulk(said, given, ("cancel", "cancelled"), _LIVE, act)


@click.command()
@bulk
def retry(said: GlobalOptions, /, **given: Any) -> None:
    """Run tasks again: those with these uuids (a beginning is enough), or all failed ones that match."""

    async def act(operations: Operations, uuids: Sequence[str]) -> int:
        return len(await operations.retry(*uuids))

    run_bulk(said, given, ("retry", "retried"), ("failed",), act)
