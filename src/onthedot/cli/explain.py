"""``onthedot task explain``: why a task is not running."""

from __future__ import annotations

from datetime import datetime

import click

from onthedot.cli.options import GlobalOptions, shared
from onthedot.cli.output import Screen, clean, screen, write_json
from onthedot.cli.target import with_operations
from onthedot.operations.explain import Explanation, ExplanationReason


@click.command()
@click.argument("uuid")
@shared("store", "name", "app", "json")
@click.pass_obj
def explain(said: GlobalOptions, uuid: str) -> None:
    """Why a task is not running, and when it may; a beginning of its uuid is enough.

    By the rules that workers go by when they take tasks; looking changes nothing.
    """
    told = with_operations(said, lambda operations: operations.explain(uuid))
    if said.json:
        write_json(told)
        return
    out = screen()
    reasons: list[Explanation | ExplanationReason] = [told, *told.also]
    click.echo(f"{told.uuid}  {clean(told.source)}  {told.state.value}\n")
    out.table(("", ""), [[each.reason, f"{each.text}{_soon(out, each.until)}"] for each in reasons])
    for each in reasons:
        if not each.by or each.by[0].uuid == told.uuid:
            continue
        more = each.by_count - len(each.by)
        click.echo(f"\n{each.reason}{f', these and {more} more' if more > 0 else ''}:")
        rows = [[by.uuid or "-", by.worker or "-", by.where or "-", out.when(by.since)] for by in each.by]
        out.table(("TASK", "WORKER", "WHERE", "SINCE"), rows)
    if told.estimated_start is not None:
        click.echo(f"\nstarts about {out.when(told.estimated_start)}")


def _soon(out: Screen, until: datetime | None) -> str:
    """On a terminal, how long that is."""
    return f" ({out.when(until)})" if until is not None and out.live else ""
