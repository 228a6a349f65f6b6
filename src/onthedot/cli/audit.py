"""``onthedot audit``: what operators have changed."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime

import click

from onthedot.cli.options import GlobalOptions, store_command, time_ago
from onthedot.cli.output import screen, write_json
from onthedot.cli.table import Column, number
from onthedot.cli.target import with_operations
from onthedot.operations import Operations
from onthedot.operations.audit import AuditEntry, AuditRecord


@store_command()
@click.option("--user", help="By this user.")
@click.option("--action", help="Of this kind, as the list shows it: pause, 'retry tasks'.")
@click.option("--since", callback=time_ago, metavar="WHEN", help="Since: 30m, 1h, 7d, or a moment.")
@click.option("--limit", type=click.IntRange(1, 10_000), metavar="N", default=50, show_default=True, help="At most.")
def audit(options: GlobalOptions, user: str | None, action: str | None, since: datetime | None, limit: int) -> None:
    """Changes by operators, newest first: from the page, the HTTP API, this command line, and app.operations.

    An entry is written before its change and completed after it. Entries are kept for 90 days.
    """

    def read(operations: Operations) -> Awaitable[list[AuditRecord]]:
        return operations.audit.newest(limit, action=action, user=user, since=since)

    found = with_operations(options, read)
    if options.json:
        write_json({"audit": [_shown(each) for each in found]})
        return
    if not found:
        click.echo("no such change" if user or action or since else "no operator has changed anything", err=True)
        return
    out = screen(utc=options.utc)
    rows = [
        [
            out.when(each.at),
            each.entry.user,
            each.entry.via,
            each.entry.action,
            each.entry.target or each.entry.filter,
            each.entry.state,
            f"{each.entry.changed:,} of {each.entry.found:,}",
            each.entry.error or each.entry.reason,
        ]
        for each in found
    ]
    columns = (
        "WHEN", "USER", "VIA", "ACTION", Column("TARGET", least=12), "STATE", number("CHANGED"),
        Column("REASON", least=12),
    )  # fmt: skip
    out.table(columns, rows)
    if len(found) == limit:
        click.echo(f"there may be more: --limit {limit * 10}", err=True)


def _shown(record: AuditRecord) -> dict[str, object]:
    fields = {name: getattr(record.entry, name) for name in AuditEntry.__struct_fields__}
    return {"id": record.id, "at": record.at, **fields}
