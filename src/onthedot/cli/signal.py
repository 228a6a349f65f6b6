"""``onthedot signal``: send signals, and list those that are kept and the tasks that wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import click
import msgspec

from onthedot.cli.add import parse_arguments
from onthedot.cli.options import GlobalOptions, duration, store_command
from onthedot.cli.output import screen, short_ids, write_json
from onthedot.cli.table import Column, cut
from onthedot.cli.target import with_operations
from onthedot.codec.plain_json import json_value
from onthedot.errors import OnTheDotError, suggestion
from onthedot.flows.signals import KEEP, new_signal
from onthedot.model.redaction import redacted
from onthedot.operations import Operations
from onthedot.operations.humanize import short_id
from onthedot.operations.signals import KeptSignal, WaitingTask
from onthedot.supervisor.exit_codes import CommandError

_MAX_PAYLOAD = 200  # characters shown
_MAX_TAKERS = 5  # shown


@store_command()
@click.argument("name")
@click.argument("values", nargs=-1, metavar="[K=V | K:=JSON]...")
@click.option("--payload", metavar="JSON", help="Any JSON value as the payload, such as '\"ann\"'; instead of K=V.")
@click.option("--to", metavar="UUID", help="Only to this task; the last or first characters of its uuid are enough.")
@click.option("--id", "signal_id", metavar="ID", help="Sending the same id again changes nothing.")
@click.option("--keep", callback=duration, metavar="TIME", help="How long it is kept: 24h or more, as in 7d. [30d]")
def send(
    options: GlobalOptions, /, name: str, values: tuple[str, ...], payload: str | None, to: str | None,
    signal_id: str | None, keep: float | None,
) -> None:  # fmt: skip
    """Send the signal NAME to every task that waits for it, now or later, and say which tasks wait for it now.

    K=V passes a string, K:=JSON anything else; both make the payload an object. --payload passes any other value.
    Without all of them the payload is null. A task whose type= the payload does not fit goes on waiting.
    """
    content = _content(values, payload)

    async def work(operations: Operations) -> _Sent:
        whole = None if to is None else await operations.tasks.complete_uuid(to)
        signal = new_signal(name, content, signal_id, KEEP if keep is None else keep, whole)
        takers = await operations.signals.takers(name, whole)
        is_new = await operations.signals.send(signal)
        return _Sent(is_new, takers, await _advice(operations, name, whole, takers))

    try:
        sent = with_operations(options, work)
    except ValueError as error:
        if not isinstance(error, OnTheDotError):
            raise
        raise CommandError(str(error)) from None
    if options.json:
        write_json({"name": name, "sent": sent.is_new, "takers": [each.uuid for each in sent.takers]})
    elif not sent.is_new:
        click.echo("kept already")
    else:
        click.echo(f"sent: {_takers_text(sent.takers)}" if sent.takers else "sent and kept")
        if sent.advice:
            click.echo(sent.advice, err=True)


def _content(values: tuple[str, ...], payload: str | None) -> object:
    """The payload: an object of named values, any JSON value, or None."""
    if payload is None:
        try:
            return parse_arguments(values, {}) or None
        except click.UsageError as error:
            raise click.UsageError(f"{error.message}; or --payload JSON for a payload that is no object") from None
    if values:
        raise click.UsageError("--payload is the whole payload: leave K=V and K:=JSON out")
    try:
        return msgspec.json.decode(payload)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{payload!r} is not JSON ({error}); a text has quotes: --payload '\"ann\"'") from None


class _Sent(NamedTuple):
    """is_new: False: its id was kept already. advice: why no task takes it now; "": one waits, and a worker lives."""

    is_new: bool
    takers: Sequence[WaitingTask]
    advice: str


def _takers_text(takers: Sequence[WaitingTask]) -> str:
    names = [f"{each.source} {short_id(each.uuid)}" for each in takers[:_MAX_TAKERS]]
    if len(takers) == 1:
        return f"{names[0]} waits for it"
    more = "" if len(takers) == len(names) else ", …"
    return f"{len(takers):,} tasks wait for it: {', '.join(names)}{more}"


async def _advice(operations: Operations, name: str, to: str | None, takers: Sequence[WaitingTask]) -> str:
    if takers:
        return "" if await operations.live_workers() else "no worker is alive to run it: onthedot worker APP starts one"
    if to is None:
        awaited = {each for task in await _waiting(operations, None) for each in task.names}
        others = suggestion(name, awaited).replace("there are:", "tasks wait for:") if awaited else ""
        return f"no task waits for {name!r} now: the next that does takes it{others}"
    task = await operations.get(to)
    who = f"{task.source} {short_id(to)}"
    if task.state.ended:
        return f"{who} has ended ({task.state.value}): nothing takes the signal, unless the task is retried"
    found = [each for each in await _waiting(operations, None) if each.uuid == to]
    if not found:
        return f"{who} does not wait for a signal now ({task.state.value}): it takes this one when it does"
    names = " or ".join(map(repr, found[0].names))
    return f"{who} waits for {names}, and not for {name!r}"


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
        click.echo("no signal is kept under that name; those that were sent to one task: --to UUID", err=True)
        return
    out = screen(utc=options.utc)
    rows = [[each.id, out.when(each.at), _payload_text(each)] for each in signals]
    out.table((Column("ID"), Column("SENT"), Column("PAYLOAD", least=16)), rows)


def _payload_text(signal: KeptSignal) -> str:
    return cut(msgspec.json.encode(redacted(json_value(signal.payload))).decode(), _MAX_PAYLOAD)
