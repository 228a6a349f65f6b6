"""``onthedot signal``: send signals, and list those that are kept and the tasks that wait for them."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from onthedot.cli.add import parse_arguments
from onthedot.cli.options import GlobalOptions, duration, store_command
from onthedot.cli.output import screen, short_ids, write_json
from onthedot.cli.table import Column, cut
from onthedot.cli.target import with_operations
from onthedot.codec.plain_json import json_value
from onthedot.errors import OnTheDotError
from onthedot.flows.signals import KEEP, new_signal
from onthedot.operations import Operations
from onthedot.operations.signals import KeptSignal, WaitingTask
from onthedot.supervisor.exit_codes import CommandError

_MAX_PAYLOAD = 200  # characters shown


@store_command()
@click.argument("name")
@click.argument("payload", nargs=-1, metavar="[K=V | K:=JSON]...")
@click.option("--to", metavar="UUID", help="Only to this task; the last or first characters of its uuid are enough.")
@click.option("--id", "signal_id", metavar="ID", help="Sending the same id again changes nothing.")
@click.option("--keep", callback=duration, metavar="TIME", help="How long it is kept: 24h or more, as in 7d. [30d]")
def send(
    options: GlobalOptions, /, name: str, payload: tuple[str, ...], to: str | None, signal_id: str | None,
    keep: float | None,
) -> None:  # fmt: skip
    """Send the signal NAME to every task that waits for it, now or later.

    K=V passes a string, K:=JSON anything else; both make the payload an object. Without them it is null.
    """
    values = parse_arguments(payload, {}) or None

    async def work(operations: Operations) -> bool:
        whole = None if to is None else await operations.tasks.complete_uuid(to)
        return await operations.signals.send(new_signal(name, values, signal_id, KEEP if keep is None else keep, whole))

    try:
        is_new = with_operations(options, work)
    except ValueError as error:
        if not isinstance(error, OnTheDotError):
            raise
        raise CommandError(str(error)) from None
    if options.json:
        write_json({"name": name, "sent": is_new})
    else:
        click.echo("sent" if is_new else "kept already")


@store_command("list")
@click.argument("name", required=False)
@click.option("--waiting", is_flag=True, help="The tasks that wait for it.")
@click.option("--to", metavar="UUID", help="Signals that were sent to this task only.")
def list_signals(options: GlobalOptions, /, name: str | None, waiting: bool, to: str | None) -> None:
    """The signals that are kept under NAME, in order; without NAME, the tasks that wait for any signal."""
    if waiting or name is None:
        tasks = with_operations(options, lambda operations: _waiting(operations, name))
        _print_waiting(options, tasks)
        return
    signals = with_operations(options, lambda operations: _kept(operations, name, to))
    _print_kept(options, signals)


async def _waiting(operations: Operations, name: str | None) -> list[WaitingTask]:
    return [each async for each in operations.signals.waiting(name)]


async def _kept(operations: Operations, name: str, to: str | None) -> list[KeptSignal]:
    whole = None if to is None else await operations.tasks.complete_uuid(to)
    return await operations.signals.kept(name, whole)


def _print_waiting(options: GlobalOptions, tasks: Sequence[WaitingTask]) -> None:
    if options.json:
        write_json({"waiting": tasks})
        return
    if not tasks:
        click.echo("no task waits for a signal", err=True)
        return
    out = screen(utc=options.utc)
    columns = (Column("ID"), Column("SOURCE", least=8), Column("SIGNAL", least=12), Column("SINCE"), Column("UNTIL"))
    rows = [
        [uuid, each.source, " or ".join(each.names), out.when(each.since), out.when(each.until)]
        for uuid, each in zip(short_ids([each.uuid for each in tasks]), tasks, strict=True)
    ]
    out.table(columns, rows)


def _print_kept(options: GlobalOptions, signals: Sequence[KeptSignal]) -> None:
    if options.json:
        write_json(
            {"signals": [{"id": each.id, "at": each.at, "payload": json_value(each.payload)} for each in signals]}
        )
        return
    if not signals:
        click.echo("no signal is kept under that name", err=True)
        return
    out = screen(utc=options.utc)
    rows = [
        [each.id, out.when(each.at), cut(msgspec.json.encode(json_value(each.payload)).decode(), _MAX_PAYLOAD)]
        for each in signals
    ]
    out.table((Column("ID"), Column("SENT"), Column("PAYLOAD", least=16)), rows)
