"""``onthedot flow``: list, show, cancel and retry flows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from onthedot.cli.flow_view import flow_lines, states_text
from onthedot.cli.options import GlobalOptions, store_command, time_ago
from onthedot.cli.output import Screen, screen, short_ids, visible, write, write_json
from onthedot.cli.table import Column, number
from onthedot.cli.target import with_operations
from onthedot.model.task import TaskInfo
from onthedot.observability.log_format import clean
from onthedot.operations import Operations
from onthedot.operations.flow_list import FlowDetails, FlowFilter
from onthedot.operations.flows import FlowProgress
from onthedot.operations.humanize import plural, short_id

_STATES = ("waiting", "scheduled", "ready", "running", "succeeded", "failed", "cancelled")


@store_command("list")
@click.option("--state", type=click.Choice(_STATES), metavar="STATE",
              help="In this state; failed: also if a member failed and what follows did not run.")  # fmt: skip
@click.option("--since", callback=time_ago, metavar="WHEN", help="Added since: 30m, 1h, 7d, or a moment.")
@click.option("--limit", type=click.IntRange(1, 1000), metavar="N", default=20, show_default=True, help="Flows shown.")
def list_flows(options: GlobalOptions, state: str | None, since: datetime | None, limit: int) -> None:
    """Flows, newest first, each by its last task."""
    flows = with_operations(options, lambda operations: operations.list_flows(limit, FlowFilter(state, since=since)))
    if options.json:
        write_json({"flows": flows})
        return
    if not flows:
        none = "there are no flows; onthedot flow show ID of a task shows what it has run as children"
        click.echo("no such flow" if state or since else none, err=True)
        return
    out = screen(utc=options.utc)
    rows = [
        [uuid, flow.state, flow.source, _progress(flow.progress), str(flow.progress.failed), out.when(flow.added)]
        for uuid, flow in zip(short_ids([flow.uuid for flow in flows]), flows, strict=True)
    ]
    columns = (Column("ID"), "STATE", Column("LAST TASK", least=8), number("ENDED"), number("FAILED"), "ADDED")
    out.table(columns, rows)


@store_command()
@click.argument("uuid")
@click.option("--tasks", is_flag=True, help="List its tasks, too.")
def show(options: GlobalOptions, uuid: str, tasks: bool) -> None:
    """A flow: its tasks by state, as a tree of what waits for what, the first failures, and what holds it up.

    The last task comes first, and below each task what it waits for. Tasks of a group are one line.
    """
    zone = UTC if options.utc else None

    async def read(operations: Operations) -> tuple[FlowDetails, list[TaskInfo]]:
        whole = await operations.tasks.complete_uuid(uuid, "flow")
        details = await operations.flow_details(whole, zone)
        return details, await _all_tasks(operations, whole) if tasks else []

    details, members = with_operations(options, read)
    if options.json:
        listed: dict[str, Any] = {"tasks": [info.to_dict() for info in members]} if tasks else {}
        write_json({"flow": details, **listed})
        return
    out = screen(utc=options.utc)
    _print_facts(out, details)
    click.echo()
    for line in flow_lines(details):
        click.echo(line)
    _print_failures(details)
    if members:
        click.echo()
        ids = short_ids([info.uuid for info in members])
        rows = [[each, info.state.value, info.source, info.reason] for each, info in zip(ids, members, strict=True)]
        out.table((Column("ID"), "STATE", Column("SOURCE", least=8), Column("", least=16)), rows)


def _print_facts(out: Screen, details: FlowDetails) -> None:
    flow = details.flow
    facts = [
        ["uuid", flow.uuid],
        ["last task", flow.source],
        ["state", flow.state],
        ["progress", _progress_with_failures(flow.progress)],
        ["tasks", states_text(details.states)],
        ["added", out.moment(flow.added)],
    ]
    if flow.ended is not None:
        facts.append(["ended", out.moment(flow.ended)])
    if details.waits:
        facts.append(["waits", details.waits])
    facts += [["", text] for text in details.blocked_by]
    out.table(("", Column("", wrap=True)), facts)


def _print_failures(details: FlowDetails) -> None:
    if not details.failures:
        return
    click.echo("\ndid not succeed, the first ones:")
    for failure in details.failures:
        click.echo(f"  {clean(failure.source)} {failure.uuid} {failure.state}: {visible(failure.error)}")
    if details.flow.ended is not None:
        short = short_id(details.flow.uuid)
        click.echo(f"\nlook:   onthedot task show {short_id(details.failures[0].uuid)}")
        click.echo(f"retry:  onthedot flow retry {short}")


async def _all_tasks(operations: Operations, uuid: str) -> list[TaskInfo]:
    page = await operations.flows.tasks(uuid)
    found = list(page)
    while page.cursor is not None:
        page = await operations.flows.tasks(uuid, cursor=page.cursor)
        found += page
    return found


def _progress(progress: FlowProgress) -> str:
    return f"{progress.done:,} of {progress.total:,}"


def _progress_with_failures(progress: FlowProgress) -> str:
    text = f"{_progress(progress)} ended"
    return f"{text}, {progress.failed:,} of them without success" if progress.failed else text


@store_command()
@click.argument("uuid")
@click.option("--reason", default="cancelled", help="Kept with the tasks.")
def cancel(options: GlobalOptions, uuid: str, reason: str) -> None:
    """Cancel all tasks of a flow, and wait up to 5 s for their ends."""

    async def apply(operations: Operations) -> int:
        return await operations.flows.cancel(await operations.tasks.complete_uuid(uuid, "flow"), reason)

    count = with_operations(options, apply)
    write(f"cancelled {plural(count, 'task')}", {"cancelled": count}, json=options.json)


@store_command()
@click.argument("uuid")
def retry(options: GlobalOptions, uuid: str) -> None:
    """Run the failed tasks of a flow again, then those that waited for them.

    Tasks that succeeded do not run again.
    """

    async def apply(operations: Operations) -> tuple[int, str]:
        whole = await operations.tasks.complete_uuid(uuid, "flow")
        count = await operations.flows.retry(whole)
        return count, (await operations.get(whole)).state.value

    count, state = with_operations(options, apply)
    write(_retried(count, state), {"retried": count, "state": state}, json=options.json)


def _retried(count: int, state: str) -> str:
    text = f"retried {plural(count, 'task')}" if count else "nothing to retry: no task of it has failed"
    if state == "succeeded":
        return f"{text}; its last task has succeeded, and does not run again"
    return text if count else f"{text}, its state is {state}"
