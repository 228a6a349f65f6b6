"""``onthedot failed``: failed tasks, grouped by error."""

from __future__ import annotations

from datetime import datetime

import click

from onthedot.cli.options import GlobalOptions, store_command, time_ago
from onthedot.cli.output import screen, write_json
from onthedot.cli.target import with_operations
from onthedot.observability.log_format import clean


@store_command()
@click.option("--since", callback=time_ago, help="Failed since: 30m, 1h, 7d, or a moment.")
@click.option("--source", help="Of this source.")
def failed(options: GlobalOptions, since: datetime | None, source: str | None) -> None:
    """Failed tasks, grouped by error: same source, type, line of code, and message up to numbers and names in it."""
    groups = with_operations(options, lambda operations: operations.failures(since, source))
    if options.json:
        write_json({"groups": groups})
        return
    if not groups:
        click.echo("nothing has failed", err=True)
        return
    out = screen()
    rows = [
        [str(each.count), each.group, each.source, out.when(each.last), each.example,
         clean(f"{each.type}: {each.message}")[:100], clean(each.place)[:60]]
        for each in groups
    ]  # fmt: skip
    out.table(("COUNT", "GROUP", "SOURCE", "LAST", "FOR EXAMPLE", "ERROR", "IN"), rows)
    click.echo(
        f"\nlook:   onthedot task show {groups[0].example}\nretry:  onthedot task retry --group {groups[0].group}"
    )
