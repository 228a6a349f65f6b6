"""``onthedot task``: look at tasks, end them, run them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from onthedot.cli.bulk import act_on, bulk
from onthedot.cli.options import Said, as_where, filters, shared
from onthedot.cli.screen import clean, screen, write_json
from onthedot.cli.store import ask
from onthedot.operations import Operations
from onthedot.operations.finding import Found
from onthedot.task import TaskInfo

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
def listed(said: Said, /, **given: Any) -> None:
    """Tasks, newest first."""
    found: Found = ask(said, lambda operations: operations.find(**as_where(given)))
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
        click.echo("no such task", err=True)
    if found.cursor is not None:
        click.echo(f"there may be more: --cursor {found.cursor}", err=True)


@click.command()
@click.argument("uuid")
@shared("store", "name", "app", "json")
@click.pass_obj
def show(said: Said, uuid: str) -> None:
    """All that is known of a task; a beginning of its uuid is enough."""
    info = ask(said, lambda operations: operations.get(uuid))
    if said.json:
        write_json(info)
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
    for error in {error.attempt: error for error in (*info.errors, info.error) if error}.values():
        click.echo(f"\nattempt {error.attempt}: {error.type}: {clean(error.message)}")
        if error.traceback:
            out.code("\n".join(map(_tame, error.traceback.splitlines())), "pytb")


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _tame(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" "))] + clean(line)


@click.command()
@bulk
def cancel(said: Said, /, **given: Any) -> None:
    """End tasks: those with these uuids (a beginning is enough), or all that match. Running ones are told."""

    async def act(operations: Operations, uuids: Sequence[str]) -> int:
        return await operations.cancel(*uuids)

    act_on(said, given, "cancelled", _LIVE, act)


@click.command()
@bulk
def retry(said: Said, /, **given: Any) -> None:
    """Run tasks again: those with these uuids (a beginning is enough), or all failed ones that match."""

    async def act(operations: Operations, uuids: Sequence[str]) -> int:
        return len(await operations.retry(*uuids))

    act_on(said, given, "retried", ("failed",), act)
