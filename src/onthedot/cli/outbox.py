"""``onthedot outbox``: unsent and failed events, relays, pauses; and a process that only relays."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeVar

import click

from onthedot.cli.options import GlobalOptions, duration, shared, store_command
from onthedot.cli.output import Screen, screen, short_ids, visible, write, write_json
from onthedot.cli.table import Column, number
from onthedot.cli.target import check_exists, target, with_operations
from onthedot.events.settings import Events
from onthedot.operations import Operations
from onthedot.operations.humanize import plural
from onthedot.operations.outbox import EventInfo, OutboxStatus, TopicInfo
from onthedot.runtime.relay_process import RelayProcess
from onthedot.stores.masked_url import masked
from onthedot.supervisor.exit_codes import FAILED, CommandError

T = TypeVar("T")
_STATUSES = ("pending", "sent", "failed", "discarded")


@store_command()
def status(options: GlobalOptions) -> None:
    """Unsent events by topic, the relays and their buckets, the groups that read the store, and resume handles.

    SENT/MIN is of the last minute, by the figures of live relays. BLOCKED is the number of keys whose events wait for a
    failed one.
    """
    found = _with_outbox(options, lambda operations: operations.outbox.status())
    if options.json:
        write_json({"outbox": found})
        return
    out = screen(utc=options.utc)
    _print_topics(out, found)
    _print_relays(out, found)
    if found.groups:
        click.echo()
        rows = [[each.group, f"{each.lag:,}", str(each.members)] for each in found.groups]
        out.table((Column("GROUP", least=8), number("LAG"), number("MEMBERS")), rows)
    if found.handles:
        click.echo()
        counts = ", ".join(f"{count:,} {name}" for name, count in sorted(found.handles.items()))
        click.echo(f"resume handles: {counts}")


def _print_topics(out: Screen, found: OutboxStatus) -> None:
    if found.paused is not None:
        reason = f": {visible(found.paused.reason)}" if found.paused.reason else ""
        click.echo(f"paused since {out.when(found.paused.since)}{reason}; onthedot outbox resume\n")
    if not found.topics:
        click.echo("nothing is unsent")
        return
    columns = (
        Column("TOPIC", least=12), number("PENDING"), "OLDEST", number("SENT/MIN"), number("FAILED"),
        number("BLOCKED"), Column("", least=16),
    )  # fmt: skip
    rows = [
        [each.topic, f"{each.pending:,}", out.when(each.oldest), f"{each.sent_per_minute:,}", f"{each.failed:,}",
         f"{each.blocked_keys:,}", _remark(each)]
        for each in found.topics
    ]  # fmt: skip
    out.table(columns, rows)


def _remark(topic: TopicInfo) -> str:
    parts: list[str] = []
    if topic.paused is not None:
        parts.append(f"paused: {topic.paused.reason}" if topic.paused.reason else "paused")
    if topic.error:
        parts.append(topic.error)
    return " · ".join(parts)


def _print_relays(out: Screen, found: OutboxStatus) -> None:
    click.echo()
    if not found.relays:
        click.echo("no relay is alive: onthedot worker APP or onthedot outbox relay starts one")
        return
    ids = short_ids([each.id for each in found.relays])
    rows = [
        [short, each.host, str(each.pid), out.when(each.started), each.bus, _ranges(each.buckets)]
        for short, each in zip(ids, found.relays, strict=True)
    ]
    columns = ("RELAY", Column("HOST", least=8), number("PID"), "SINCE", Column("BUS", least=8), "BUCKETS")
    out.table(columns, rows)


def _ranges(numbers: Sequence[int]) -> str:
    """
    >>> _ranges((0, 1, 2, 5, 7, 8))
    '0-2 5 7-8'
    """
    parts: list[list[int]] = []
    for each in numbers:
        if parts and parts[-1][-1] == each - 1:
            parts[-1][1:] = [each]
        else:
            parts.append([each])
    return " ".join("-".join(map(str, part)) for part in parts) or "-"


@store_command("list")
@click.option("--status", "event_status", type=click.Choice(_STATUSES), metavar="STATUS",
              help=f"In this status: {', '.join(_STATUSES[:-1])} or {_STATUSES[-1]}.")  # fmt: skip
@click.option("--topic", help="Of this topic.")
@click.option("--key", help="With this key.")
@click.option("--correlation", help="With this correlation id.")
@click.option("--after", type=click.IntRange(0), metavar="NUMBER", default=0, help="After this number: the next page.")
@click.option("--limit", type=click.IntRange(1, 1000), metavar="N", default=100, show_default=True, help="At most.")
def list_events(
    options: GlobalOptions, /, event_status: str | None, topic: str | None, key: str | None, correlation: str | None,
    after: int, limit: int,
) -> None:  # fmt: skip
    """Events in the order of publishing, without their payloads."""

    def read(operations: Operations) -> Awaitable[list[EventInfo]]:
        return operations.outbox.events(
            status=event_status, topic=topic, key=key, correlation_id=correlation, after=after, limit=limit
        )

    events = _with_outbox(options, read)
    if options.json:
        write_json({"events": events})
        return
    if not events:
        is_filtered = any((event_status, topic, key, correlation, after))
        click.echo("no such event" if is_filtered else "there are no events", err=True)
        return
    out = screen(utc=options.utc)
    rows = [
        [str(each.number), each.id, each.status, each.type or "-", each.topic, each.key, out.when(each.occurred_at),
         each.error]
        for each in events
    ]  # fmt: skip
    columns = (
        number("NUMBER"), "ID", "STATUS", Column("TYPE", least=12), Column("TOPIC", least=12),
        Column("KEY", least=8), "OCCURRED", Column("ERROR", least=16),
    )  # fmt: skip
    out.table(columns, rows)
    if len(events) == limit:
        click.echo(f"there may be more: --after {events[-1].number}", err=True)


@store_command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
def retry(options: GlobalOptions, ids: tuple[str, ...]) -> None:
    """Send failed events again; the last or first characters of an ID are enough."""
    _amend(options, ids, "retry", "", "is sent again", "are sent again")


@store_command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", default="", help="Kept with the events.")
def discard(options: GlobalOptions, ids: tuple[str, ...], reason: str) -> None:
    """Give failed events up, so that later ones of their keys are sent; characters of an ID as in `retry`."""
    _amend(options, ids, "discard", reason, "is discarded", "are discarded")


def _amend(
    options: GlobalOptions, ids: Sequence[str], action: Literal["retry", "discard"], reason: str, one: str, many: str
) -> None:
    async def amend(operations: Operations) -> list[str]:
        whole = await operations.outbox.complete_ids(ids)
        if action == "retry":
            return await operations.outbox.retry(*whole)
        return await operations.outbox.discard(*whole, reason=reason)

    amended = _with_outbox(options, amend)
    missing = len(set(ids)) - len(amended)
    text = plural(len(amended), f"event {one}", f"events {many}")
    if missing:
        text += f"; {plural(missing, 'id is', 'ids are')} of no failed event: onthedot outbox list --status failed"
    write(text, {action: amended}, json=options.json)
    if missing:
        raise SystemExit(FAILED)


@store_command()
@click.argument("topic", required=False)
@click.option("--reason", default="", help="Shown to others who look.")
def pause(options: GlobalOptions, topic: str | None, reason: str) -> None:
    """Send no events of TOPIC, or none at all, until `resume`. Relays notice within a second."""
    before = _with_outbox(options, lambda operations: operations.outbox.pause(topic, reason))
    what = topic or "the outbox"
    text = f"{what} was paused already"
    if not before:
        resume_command = f"onthedot outbox resume {topic}" if topic else "onthedot outbox resume"
        text = f"paused {what}; {resume_command} ends it"
    write(text, {"paused": topic or "*", "before": before}, json=options.json)


@store_command()
@click.argument("topic", required=False)
def resume(options: GlobalOptions, topic: str | None) -> None:
    """Send the events of TOPIC again, or those of all topics that are not paused themselves."""
    before = _with_outbox(options, lambda operations: operations.outbox.resume(topic))
    what = topic or "the outbox"
    text = f"resumed {what}" if before else f"{what} was not paused"
    write(text, {"resumed": topic or "*", "before": before}, json=options.json)


@store_command()
@click.option("--sent-by-others", is_flag=True, required=True,
              help="Required: events that are marked are never sent by a relay.")  # fmt: skip
@click.option("--older-than", callback=duration, metavar="TIME", default="1h", show_default=True,
              help="The other program has read what occurred so long ago: 10m, 1h.")  # fmt: skip
@click.option("--keep-sent", callback=duration, metavar="TIME", default="7d", show_default=True,
              help="How long rows are kept after they were marked.")  # fmt: skip
def purge(options: GlobalOptions, /, sent_by_others: bool, older_than: float, keep_sent: float) -> None:  # noqa: ARG001
    """Mark unsent events as sent by another program, such as Debezium, and delete those that were marked long ago.

    It is refused while a relay is alive. Run it by a schedule, once per hour.
    """
    age = timedelta(seconds=older_than)
    keep = timedelta(seconds=keep_sent)
    found = _with_outbox(options, lambda operations: operations.outbox.purge_sent_by_others(age, keep))
    text = f"marked {plural(found.marked, 'event')} as sent, deleted {plural(found.deleted, 'row')}"
    write(text, {"marked": found.marked, "deleted": found.deleted}, json=options.json)


@click.command()
@shared("store", "name", "app")
@click.option("--bus", metavar="URL", help="Where events are sent: kafka://…, or store. [ONTHEDOT_BUS, the store]",
              envvar="ONTHEDOT_BUS")  # fmt: skip
@click.option("--poll", type=click.FloatRange(0.01, 3600), metavar="SECONDS",
              help="How often the outbox is read without a notification. [of the app behind -A, 1]")  # fmt: skip
@click.option(
    "--keep-sent",
    callback=duration,
    metavar="TIME",
    help="How long sent events are kept: 12h, 7d. [of the app behind -A, 7d]",
)
@click.option("--wait-for-store", type=click.FloatRange(0), metavar="SECONDS", default=60.0, show_default=True,
              help="Seconds to wait at the start for a store that cannot be reached. 0: do not wait.")  # fmt: skip
@click.option("--log-format", type=click.Choice(["console", "json"]), help="[console]")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
              help="The least level that is logged. [info]")  # fmt: skip
@click.pass_obj
def relay(
    options: GlobalOptions, /, bus: str | None, poll: float | None, keep_sent: float | None, wait_for_store: float,
    log_format: Literal["console", "json"] | None, log_level: str | None,
) -> None:  # fmt: skip
    """Send the events of one app to the bus until SIGTERM or Ctrl+C, without user code and without running tasks.

    Several may run, also beside workers: they share the work. It refuses another bus than that of live relays.
    """
    url, name = outbox_target(options)
    check_exists(url, name)
    settings = event_settings(options, bus=bus, poll=poll, keep_sent=keep_sent)
    process = RelayProcess(url, name, settings, wait_for_store, log_format, log_level)

    def on_ready(bus: str) -> None:
        click.echo(f"relay ready · {name} · {masked(url)} · to {bus} · polls every {settings.poll:g} s")

    asyncio.run(process.run(on_ready))


def event_settings(options: GlobalOptions, **given: Any) -> Events:
    """Those of the app behind -A, if it is given; flags take precedence, where they are not None."""
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if options.module is None:
        return Events(**changes)
    from onthedot.supervisor.app_loader import load_app_and_included

    return dataclasses.replace(load_app_and_included(options.module).runtime.config.events, **changes)


def outbox_target(options: GlobalOptions) -> tuple[str, str]:
    """The database of the outbox, which an app may keep apart from its tasks."""
    url, name = target(options)
    if options.module is not None and options.store is None:
        from onthedot.supervisor.app_loader import load_app_and_included

        url = load_app_and_included(options.module).runtime.config.events.outbox or url
    if url.startswith("redis"):
        raise CommandError(f"{masked(url)} has no outbox; name the database of Events(outbox=…) by --store", FAILED)
    return url, name


def _with_outbox(options: GlobalOptions, work: Callable[[Operations], Awaitable[T]]) -> T:
    options.store, name = outbox_target(options)
    options.app_name = name or options.app_name
    options.module = None  # its code was read
    return with_operations(options, work)
