"""``onthedot outbox dlt``: dead letters, and replays of their events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from onthedot.cli.options import GlobalOptions, store_command, time_ago
from onthedot.cli.outbox import event_settings, outbox_target
from onthedot.cli.output import screen, write, write_json
from onthedot.cli.table import Column, number
from onthedot.cli.target import check_exists
from onthedot.clock.epoch import from_ms, from_optional_ms
from onthedot.clock.system import SystemClock
from onthedot.errors import BadLimit
from onthedot.events.bus import BusError
from onthedot.events.dead_letter_queue import DeadLetterQueue, FoundLetter, LetterFilter, ReplayResult
from onthedot.events.settings import Events
from onthedot.model.limits import Rate
from onthedot.model.uuid7 import new_uuid
from onthedot.operations import Operations
from onthedot.operations.audit import Actor, list_names, system_user
from onthedot.operations.humanize import plural
from onthedot.runtime.dead_letters import open_dead_letters
from onthedot.stores import connect
from onthedot.stores.contract import Store
from onthedot.supervisor.exit_codes import FAILED, CommandError

T = TypeVar("T")


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Add TOPIC, the filters and the bus."""
    for option in (
        click.option("--dlt-suffix", metavar="SUFFIX",
                     help="End of the names of dead-letter topics. [of the app behind -A, .DLT]"),
        click.option("--bus", metavar="URL", envvar="ONTHEDOT_BUS",
                     help="Where the dead letters are: kafka://…, or store. [ONTHEDOT_BUS, the store]"),
        click.option("--agent", help="Of this agent."),
        click.option("--error", help="Part of the error's type or message."),
        click.option("--since", callback=time_ago, metavar="WHEN", help="Written since: 30m, 1h, 7d, or a moment."),
        click.argument("topic", required=False),
    ):  # fmt: skip
        command = option(command)
    return command


@store_command("list")
@_options
@click.option("--limit", type=click.IntRange(1, 10_000), metavar="N", default=100, show_default=True, help="At most.")
def list_letters(
    options: GlobalOptions, /, topic: str | None, since: datetime | None, error: str | None, agent: str | None,
    bus: str | None, dlt_suffix: str | None, limit: int,
) -> None:  # fmt: skip
    """Dead letters of TOPIC, or of all topics, newest first. TOPIC is the one that the events came from."""
    wanted = LetterFilter(topic, (), _ms(since), error, agent)

    settings = event_settings(options, bus=bus, dlt_suffix=dlt_suffix)
    found = with_letters(options, settings, lambda letters, _: letters.newest(wanted, limit))
    if options.json:
        write_json({"dead_letters": [_shown(each) for each in found.letters]})
        return
    if not found.letters:
        click.echo(_nothing_found(settings), err=True)
        return
    out = screen(utc=options.utc)
    rows = [
        [each.letter.event_id, each.letter.type or "-", each.letter.agent or "-", out.when(from_optional_ms(each.at)),
         str(each.letter.attempts or "-"), str(each.letter.replay or "-"), each.topic,
         f"{each.letter.error_type}: {each.letter.error_message}"]
        for each in found.letters
    ]  # fmt: skip
    columns = (
        "EVENT", Column("TYPE", least=12), "AGENT", "WRITTEN", number("ATTEMPTS"), number("REPLAY"),
        Column("TOPIC", least=12), Column("ERROR", least=16),
    )  # fmt: skip
    out.table(columns, rows)
    if found.others:
        click.echo(f"{found.others} more: --limit, --since, --error and --agent narrow the list", err=True)


@store_command()
@_options
@click.option("--id", "ids", multiple=True, metavar="ID", help="Of the event with this id; may be repeated.")
@click.option("--all", "every", is_flag=True, help="All of them.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@click.option("--rate", metavar="RATE", help="At most so many in a time: 50/s, 100/m.")
@click.option("--again", is_flag=True, help="Also those that were replayed before.")
def replay(
    options: GlobalOptions, /, topic: str | None, since: datetime | None, error: str | None, agent: str | None,
    bus: str | None, dlt_suffix: str | None, ids: tuple[str, ...], every: bool, dry_run: bool, rate: str | None,
    again: bool,
) -> None:  # fmt: skip
    """Publish the events of dead letters again, to the topics that they came from.

    Only the agent that failed handles them. The same dead letter is replayed once; --again replays it once more. Name
    the dead letters by --id, --error, --agent or --since, or say --all.
    """
    if not (every or ids or error or agent or since):
        raise CommandError("which ones? name them by --id, --error, --agent or --since, or say --all", FAILED)
    wanted = LetterFilter(topic, ids, _ms(since), error, agent)
    settings = event_settings(options, bus=bus, dlt_suffix=dlt_suffix)
    if dry_run:
        count = with_letters(options, settings, lambda letters, _: letters.count(wanted))
        text = plural(count, "dead letter would be replayed", "dead letters would be replayed")
        write(text, {"dead_letters": count, "dry_run": True}, json=options.json)
        return
    per_second = _per_second(rate)

    async def replay_recorded(letters: DeadLetterQueue, operations: Operations) -> ReplayResult:
        async with operations.recorded("replay dead letters", _filter_text(wanted)) as note:
            result = await letters.replay(wanted, again=again, per_second=per_second)
            note.found = len(result.replayed) + len(result.unchanged)
            note.changed = len(result.replayed)
        return result

    result = with_letters(options, settings, replay_recorded)
    if not result.replayed and not result.unchanged:
        click.echo(_nothing_found(settings), err=True)
    text = plural(len(result.replayed), "event is published again", "events are published again")
    if result.unchanged:
        text += f"; {plural(len(result.unchanged), 'was', 'were')} replayed before: --again repeats that"
    write(text, {"replayed": result.replayed, "unchanged": result.unchanged}, json=options.json)


def _filter_text(wanted: LetterFilter) -> str:
    given = {"topic": wanted.topic, "error": wanted.error, "agent": wanted.agent, "event": list_names(list(wanted.ids))}
    if wanted.since is not None:
        given["since"] = from_ms(int(wanted.since)).isoformat()
    return " ".join(f"{name}:{value}" for name, value in given.items() if value) or "all"


def _nothing_found(settings: Events) -> str:
    return f"no such dead letter in topics that end in {settings.dlt_suffix}"


def _ms(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp() * 1000


def _per_second(rate: str | None) -> float | None:
    if rate is None:
        return None
    try:
        return Rate(rate).per_second
    except BadLimit as error:
        raise click.BadParameter(str(error), param_hint="--rate") from None


def _shown(found: FoundLetter) -> dict[str, Any]:
    letter = found.letter
    return {
        "event_id": letter.event_id,
        "type": letter.type,
        "agent": letter.agent,
        "topic": found.topic,
        "written": from_optional_ms(found.at),
        "error_type": letter.error_type,
        "error": letter.error_message,
        "attempts": letter.attempts,
        "replay": letter.replay,
        "task": letter.task,
        "correlation_id": letter.correlation_id,
        "traceback": letter.traceback,
        "dead_letter": f"{found.record.topic}/{found.record.partition}/{found.record.offset}",
    }


def with_letters(
    options: GlobalOptions, settings: Events, work: Callable[[DeadLetterQueue, Operations], Awaitable[T]]
) -> T:
    """Calls work with the dead letters of the app. Raises CommandError if the bus does not answer."""
    url, name = outbox_target(options)
    check_exists(url, name)
    return asyncio.run(_run(connect(url, SystemClock(), name), name, settings, work))


async def _run(
    store: Store, name: str, settings: Events, work: Callable[[DeadLetterQueue, Operations], Awaitable[T]]
) -> T:
    await store.open()
    operations = Operations(store, new_uuid()).acting_as(Actor(system_user(), via="cli"))
    try:
        async with open_dead_letters(store, name, settings) as letters:
            return await work(letters, operations)
    except BusError as error:
        raise CommandError(str(error), FAILED) from None
    finally:
        await store.close()
