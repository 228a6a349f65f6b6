"""``onthedot task``: show, explain, cancel and retry tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, NamedTuple, cast

import click
import msgspec

from onthedot.cli.bulk import BulkAction, bulk_options, run_bulk
from onthedot.cli.options import GlobalOptions, filters, store_command, task_filter
from onthedot.cli.output import Screen, screen, short_ids, visible, visible_lines, write_json
from onthedot.cli.table import Column, cut, number
from onthedot.cli.target import with_operations
from onthedot.codec.plain_json import json_value
from onthedot.model.batch_names import batch_task
from onthedot.model.redaction import redacted
from onthedot.model.task import TaskInfo, TaskState
from onthedot.observability.log_format import clean
from onthedot.operations import Operations
from onthedot.operations.explain import Explanation, ExplanationReason
from onthedot.operations.filters import parse_filter
from onthedot.operations.humanize import duration_text, from_now, plural, short_id, suffix
from onthedot.operations.task_queries import TaskFilter, TaskPage
from onthedot.operations.waits import StepInfo

_MAX_RESULT = 2000  # characters shown
_MAX_REMARK = 200
_MAX_FLOWS = 3  # named after a retry
_TRY = 3  # the place of that column, which is left out if every task is in its first attempt
_ALIVE = ("scheduled", "ready", "running", "waiting")
_NO_RESULT = {"expired": "is not kept any more", "not_stored": "could not be stored; the worker's log says why"}

_MAX_SORTED = 10_000  # tasks that are read to sort them
_EPOCH = datetime.fromtimestamp(0, UTC)
_ORDERS: dict[str, Callable[[TaskInfo], Any]] = {
    "took": lambda info: -(info.duration or timedelta()),
    "due": lambda info: (info.state.ended, info.schedule_at),
    "ended": lambda info: _EPOCH - (info.ended_at or _EPOCH),
    "tries": lambda info: -info.attempt,
}


@store_command("list")
@click.argument("text", metavar="FILTER", required=False, default="")
@filters
@click.option(
    "--limit", type=click.IntRange(1, 10_000), metavar="N", default=20, show_default=True, help="Tasks shown."
)
@click.option("--cursor", help="Continue where the last page ended.")
@click.option("--sort", type=click.Choice(list(_ORDERS)),
              help="The longest run, the next due, the last end or most attempts first. [newest first]")  # fmt: skip
def list_tasks(options: GlobalOptions, /, text: str, sort: str | None, **given: Any) -> None:
    """Tasks, newest first; of one state the next to run, the soonest or the last ended first.

    FILTER has filters in one text, as the page does: 'source:deliver state:failed customer:acme since:1h'.
    """
    where = task_filter(given)
    if text:
        where = _both(parse_filter(text), where)
    if sort and "cursor" in where:
        raise click.UsageError("--sort has no pages: raise --limit instead of --cursor")
    filtered = where.keys() > {"limit"}
    page = with_operations(options, lambda operations: _full_page(operations, where, sort))
    if options.json:
        write_json({"tasks": [_in_utc(info).to_dict() for info in page], "cursor": page.cursor})
        return
    if page.tasks:
        _print_tasks(screen(utc=options.utc), page.tasks)
    else:
        click.echo("no such task" if filtered else "there are no tasks", err=True)
    if page.cursor is not None:
        click.echo(f"there may be more: --cursor {page.cursor}", err=True)


def _both(written: TaskFilter, given: TaskFilter) -> TaskFilter:
    """The filters of the text and of the options."""
    twice = sorted(written.keys() & given.keys())
    if twice:
        raise click.UsageError(f"{', '.join(twice)} is given in FILTER and as an option")
    return {**written, **given}


def _print_tasks(out: Screen, tasks: Sequence[TaskInfo]) -> None:
    columns = [
        Column("ID"), Column("STATE"), Column("SOURCE", least=8), number("TRY", drop=2),
        Column("AGE" if out.is_relative else "ADDED"), number("TOOK", drop=1), Column("", least=16),
    ]  # fmt: skip
    rows = [
        [uuid, info.state.value, info.source, str(info.attempt), out.when(info.added_at).removesuffix(" ago"),
         _took(info), _remark(out, info)]
        for uuid, info in zip(short_ids([info.uuid for info in tasks]), tasks, strict=True)
    ]  # fmt: skip
    if all(info.attempt == 1 for info in tasks):
        del columns[_TRY]
        for row in rows:
            del row[_TRY]
    out.table(columns, rows)


async def _full_page(operations: Operations, where: TaskFilter, sort: str | None) -> TaskPage:
    """Read on until `limit` tasks are found: one call of `find` looks at a bounded number of tasks only."""
    limit = where.get("limit", 0)
    wanted = _MAX_SORTED if sort else limit
    where["limit"] = wanted
    page = await operations.find(**where)
    while page.cursor is not None and len(page) < wanted:
        where["limit"] = wanted - len(page)
        where["cursor"] = page.cursor
        more = await operations.find(**where)
        page = TaskPage(page.tasks + more.tasks, more.cursor)
    if sort is None:
        return page
    if page.cursor is not None:
        click.echo(f"of the newest {_MAX_SORTED:,} that match", err=True)
    return TaskPage(tuple(sorted(page, key=_ORDERS[sort])[:limit]), None)


def _in_utc(info: TaskInfo) -> TaskInfo:
    """All times of JSON have one form; only this one may be in the zone of the caller."""
    return replace(info, schedule_at=info.schedule_at.astimezone(UTC))


def _took(info: TaskInfo) -> str:
    if info.state is TaskState.RUNNING and info.started_at is not None:
        return f"{duration_text((datetime.now(UTC) - info.started_at).total_seconds())} +"
    return duration_text(None if info.duration is None else info.duration.total_seconds())


def _remark(out: Screen, info: TaskInfo) -> str:
    """Its error, or why it ended, or its arguments; and its due time, if that is to come."""
    text = info.reason or info.label or _args_text(info)
    if info.error:
        text = f"{info.error.type}: {info.error.message}"
    if info.state is TaskState.SCHEDULED:
        text = f"due {out.when(info.schedule_at)}{suffix(' · ', text)}"
    return cut(visible(text), _MAX_REMARK)


def _args_text(info: TaskInfo) -> str:
    shown = cast(Mapping[str, object], redacted(_args(info)))
    return ", ".join(f"{name}={value!r}" for name, value in shown.items())


def _args(info: TaskInfo) -> Mapping[str, object]:
    """Of a batch what was asked for: the rest of its arguments is about the way it is stored."""
    if batch_task(info.source) is None or "count" not in info.args:
        return info.args
    return {name: info.args[name] for name in ("type", "count") if name in info.args}


@store_command()
@click.argument("uuid")
def show(options: GlobalOptions, uuid: str) -> None:
    """All that is known about a task; the last or first characters of its uuid are enough."""
    zone = UTC if options.utc else None
    found = with_operations(options, lambda operations: _get(operations, uuid, zone))
    info = found.info
    if options.json:
        more = {"steps": found.steps, "items": found.items, "flow": found.flow, "waits": found.waits}
        write_json(_in_utc(info).to_dict() | more)
        return
    out = screen(utc=options.utc)
    attempts = (
        f"{info.attempt} ({plural(info.retries, 'retry', 'retries')}, {plural(info.crashes, 'crash', 'crashes')})"
    )
    facts: list[tuple[str, object]] = [
        ("uuid", info.uuid), ("source", info.source), ("state", info.state.value),
        ("", "cancel wanted" if info.cancel_wanted else ""), ("label", info.label), ("args", _json(_args(info))),
        ("attempt", attempts), ("priority", info.priority), ("added", _moment(out, info.added_at)),
        ("due", _moment(out, info.schedule_at)), ("started", _moment(out, info.started_at)),
        ("ended", _moment(out, info.ended_at)), ("took", _took(info)),
        ("worker", info.worker), ("unique", info.unique), ("lane", info.lane),
        ("tags", ", ".join(info.tags)), ("metadata", _json(info.metadata) if info.metadata else ""),
        ("progress", "" if info.progress is None else "{:g} of {:g}".format(*info.progress)), ("reason", info.reason),
        ("items", f"{found.items:,} saved" if found.items else ""), ("flow", found.flow), ("waits", found.waits),
    ]  # fmt: skip
    rows = [[name, str(value)] for name, value in facts if value not in ("", None, "-")]
    out.table(("", Column("", wrap=True)), rows)
    if found.steps:
        click.echo("\nsteps:")
        columns = (Column("NAME", least=12), number("BYTES"), Column("", least=16))
        out.table(columns, [[each.name, f"{each.size:,}", _step_text(out, each)] for each in found.steps])
    if info.result_status == "stored":
        text = visible_lines(info.result if isinstance(info.result, str) else _json(info.result))
        click.echo(f"\nresult:\n{text[:_MAX_RESULT]}")
        if len(text) > _MAX_RESULT:
            click.echo(f"… of {len(text):,} characters; --json has all of them")
    elif info.result_status in _NO_RESULT:
        click.echo(f"\nit succeeded, but its result {_NO_RESULT[info.result_status]}")
    for error in {error.attempt: error for error in (*info.errors, info.error) if error}.values():
        click.echo(f"\nattempt {error.attempt}: {clean(error.type)}: {visible(error.message)}")
        if error.started_at is not None and error.ended_at is not None:
            took = duration_text((error.ended_at - error.started_at).total_seconds())
            click.echo(f"started {out.moment(error.started_at)}, took {took}, worker {clean(short_id(error.worker))}")
        if error.traceback:
            out.code(visible_lines(error.traceback), "pytb")


def _moment(out: Screen, at: datetime | None) -> str:
    """The time and how long ago it is."""
    if at is None:
        return ""
    return f"{out.moment(at)} ({from_now(at)})"


def _step_text(out: Screen, step: StepInfo) -> str:
    parts = [
        step.type,
        suffix("since ", "" if step.since is None else out.moment(step.since)),
        suffix("until ", "" if step.until is None else out.moment(step.until)),
        suffix("signal ", step.signal),
    ]
    return ", ".join(filter(None, parts))


class _Shown(NamedTuple):
    """items: of a stream, that are saved. flow: the flow that it belongs to. waits: what a waiting task waits for."""

    info: TaskInfo
    steps: list[StepInfo]
    items: int
    flow: str | None
    waits: str


async def _get(operations: Operations, uuid: str, zone: tzinfo | None) -> _Shown:
    whole = await operations.tasks.complete_uuid(uuid)
    info = await operations.get(whole)
    waits = ""
    if info.state is TaskState.WAITING:
        waits = (await operations.explain(whole, zone)).text
    steps = await operations.steps(whole)
    return _Shown(info, steps, await operations.streamed(whole), await operations.flows.flow_of(whole), waits)


def _json(value: object) -> str:
    return msgspec.json.encode(redacted(json_value(value))).decode()


@store_command()
@click.argument("uuid")
def explain(options: GlobalOptions, uuid: str) -> None:
    """Why a task is not running, and when it may; the last or first characters of its uuid are enough.

    Uses the same rules as workers that pick tasks; the store is not changed.
    """
    zone = UTC if options.utc else None
    found = with_operations(options, lambda operations: _explain(operations, uuid, zone))
    if options.json:
        write_json(found)
        return
    out = screen(utc=options.utc)
    reasons: list[Explanation | ExplanationReason] = [found, *found.also]
    click.echo(f"{found.uuid}  {clean(found.source)}  {found.state.value}\n")
    rows = [[each.reason, f"{each.text}{_until(out, each.until)}"] for each in reasons]
    out.table(("", Column("", wrap=True)), rows)
    for each in reasons:
        if each.by and each.by[0].uuid != found.uuid:
            _print_holders(out, each)
    if found.estimated_start is not None:
        click.echo(f"\nstarts about {_moment(out, found.estimated_start)}")


def _print_holders(out: Screen, reason: Explanation | ExplanationReason) -> None:
    if reason.reason == "waiting_tasks" and not any(by.worker for by in reason.by):
        return  # the text names them
    title = reason.reason
    if (more := reason.by_count - len(reason.by)) > 0:
        title += f", these and {more} more"
    click.echo(f"\n{title}:")
    tasks = short_ids([by.uuid or "" for by in reason.by])
    workers = short_ids([by.worker or "" for by in reason.by])
    rows = [
        [task, worker or "-", by.where or "-", out.when(by.since)]
        for task, worker, by in zip(tasks, workers, reason.by, strict=True)
    ]
    if any(tasks):
        out.table(("TASK", "WORKER", Column("WHERE", least=8), "SINCE"), rows)
    else:
        out.table(("WORKER", Column("WHERE", least=8), "SINCE"), [row[1:] for row in rows])


async def _explain(operations: Operations, uuid: str, zone: tzinfo | None) -> Explanation:
    return await operations.explain(await operations.tasks.complete_uuid(uuid), zone)


def _until(out: Screen, until: datetime | None) -> str:
    """On a terminal: how long it takes until then."""
    if until is None or not out.live:
        return ""
    return f" ({from_now(until)})"


@store_command()
@bulk_options
def cancel(options: GlobalOptions, /, **given: Any) -> None:
    """Cancel the tasks with these uuids (the last or first characters are enough), or all that match.

    Running tasks are cancelled by their workers.
    """

    async def apply(operations: Operations, uuids: Sequence[str]) -> int:
        return await operations.cancel(*uuids)

    run_bulk(options, given, BulkAction("cancel", "cancelled", _ALIVE, _ALIVE, apply))


@store_command()
@bulk_options
def retry(options: GlobalOptions, /, **given: Any) -> None:
    """Run tasks again: those with these uuids, or all failed ones that match.

    The last or first characters of a uuid are enough. Tasks of a flow that were cancelled because of these, and of no
    others, run again after them. `onthedot flow retry` runs all of a flow again that did not succeed.
    """
    flows: dict[str, int] = {}  # and how many tasks of each are left that did not succeed

    async def apply(operations: Operations, uuids: Sequence[str]) -> int:
        changed = await operations.retry(*uuids)
        flows.update(await operations.flows.not_succeeded(changed))
        return len(changed)

    run_bulk(options, given, BulkAction("retry", "retried", ("failed", "cancelled"), ("failed",), apply))
    held_back = [] if options.json else [flow for flow, count in flows.items() if count]
    for flow in held_back[:_MAX_FLOWS]:
        others = plural(flows[flow], "other task has", "other tasks have")
        click.echo(f"flow {short_id(flow)}: {others} not succeeded: onthedot flow retry {short_id(flow)}", err=True)
