"""``onthedot failed``: failed tasks, grouped by error."""

from __future__ import annotations

from datetime import datetime

import click

from onthedot.cli.options import GlobalOptions, store_command, time_ago
from onthedot.cli.output import screen, short_ids, visible, write_json
from onthedot.cli.table import Column, cut, number
from onthedot.cli.target import with_operations
from onthedot.model.task import TaskInfo, TaskState
from onthedot.observability.log_format import clean
from onthedot.operations import Operations
from onthedot.operations.failures import FailureGroup
from onthedot.operations.humanize import short_id

_MAX_ERROR = 400  # characters shown


@store_command()
@click.option("--since", callback=time_ago, metavar="WHEN", help="Failed since: 30m, 1h, 7d, or a moment.")
@click.option("--source", help="Of this source.")
def failed(options: GlobalOptions, since: datetime | None, source: str | None) -> None:
    """Failed tasks, grouped by error: same source, type, line of code, and message up to numbers and names in it."""

    async def read(operations: Operations) -> tuple[list[FailureGroup], TaskInfo | None]:
        found = await operations.failures(since, source)
        return found, await operations.parent(found[0].example) if found else None

    groups, parent = with_operations(options, read)
    if options.json:
        write_json({"groups": groups})
        return
    if not groups:
        click.echo("nothing has failed", err=True)
        return
    out = screen(utc=options.utc)
    examples = short_ids([each.example for each in groups])
    rows = [
        [str(each.count), each.group, each.source, out.when(each.last), example]
        for each, example in zip(groups, examples, strict=True)
    ]
    errors = {place: _error_lines(each) for place, each in enumerate(groups)}
    out.table((number("COUNT"), "GROUP", Column("SOURCE", least=8), "LAST", "EXAMPLE"), rows, errors)
    click.echo(f"\nlook:   onthedot task show {examples[0]}\nretry:  onthedot task retry --group {groups[0].group}")
    if parent is not None and parent.state is TaskState.FAILED:
        remark = f"{clean(parent.source)} ran it as a child, and has failed, too"
        click.echo(f"then:   onthedot task retry {short_id(parent.uuid)}  # {remark}")


def _error_lines(group: FailureGroup) -> list[str]:
    error = cut(visible(f"{group.type}: {group.message}"), _MAX_ERROR)
    return [error, f"in {group.place}"] if group.place else [error]
