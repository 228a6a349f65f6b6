"""``onthedot move``: move pending tasks, schedules and limits to another store, while workers run on both."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import asdict

import click

from onthedot.cli.interrupt import stop_event
from onthedot.cli.options import GlobalOptions, shared
from onthedot.cli.output import screen, write_json
from onthedot.cli.table import Column, number
from onthedot.cli.target import check_exists, target
from onthedot.clock.system import SystemClock
from onthedot.errors import shortened_list
from onthedot.operations.humanize import plural
from onthedot.operations.move import Move, MoveResult, movable
from onthedot.runtime.settings import store_url
from onthedot.stores import connect
from onthedot.stores.contract import Store
from onthedot.stores.masked_url import masked
from onthedot.stores.schemes import file_of
from onthedot.supervisor.exit_codes import INTERRUPTED, CommandError


@click.command()
@click.option("--from", "source", required=True, metavar="URL", help="The store to move from.")
@click.option("--to", "to", required=True, metavar="URL", help="The store to move to; it is created if possible.")
@click.option(
    "--wait", is_flag=True, help="Wait until running tasks, flows and durable tasks have ended; move what is requeued."
)
@click.option("--release", is_flag=True, help="Also move what an earlier, unfinished move has left on either side.")
@click.option("--dry-run", is_flag=True, help="Only print what would be moved; tasks of flows are counted too.")
@shared("name", "json")
@click.pass_obj
def move(options: GlobalOptions, source: str, to: str, wait: bool, release: bool, dry_run: bool) -> None:
    """Move pending tasks, schedules and the operator's limits to another store; workers may run on both.

    A task runs once, wherever it is. Running tasks stay, and are moved if they are requeued (--wait). Ended tasks stay.
    A move that was killed is continued by running it again. Ctrl+C stops after the current batch.
    """
    options.store = store_url(source)
    url, name = target(options)
    check_exists(url, name)
    if store_url(to).startswith("memory:"):
        raise CommandError("memory:// lives inside one process: nothing can be moved into another's")
    if dry_run:
        asyncio.run(_print_movable(options, url, name))
        return
    result = asyncio.run(_move(options, (url, to), name, wait=wait, release=release))
    if options.json:
        write_json(asdict(result), names=("kept",))
    else:
        _report(result, masked(to))
    if result.stopped:
        raise SystemExit(INTERRUPTED)
    raise SystemExit(int(bool(result.kept or result.arriving or result.unclear or result.busy)))


async def _print_movable(options: GlobalOptions, url: str, name: str) -> None:
    async with AsyncExitStack() as stack:
        found = await movable(await _open(stack, url, name))
    if options.json:
        write_json({"tasks": found.tasks, "schedules": found.schedules, "limits": found.limits}, names=("tasks",))
        return
    rows = [["task", source, str(count)] for source, count in sorted(found.tasks.items())]
    rows += [["schedule", each, "1"] for each in found.schedules]
    rows += [["limit", each, "1"] for each in found.limits]
    screen().table(("WHAT", Column("NAME", least=8), number("WOULD MOVE")), rows)


async def _move(options: GlobalOptions, urls: tuple[str, str], name: str, *, wait: bool, release: bool) -> MoveResult:
    async with AsyncExitStack() as stack:
        stop = stack.enter_context(stop_event("stopping after this batch; Ctrl+C again stops now"))
        source, destination = [await _open(stack, url, name) for url in urls]
        total = sum((await movable(source)).tasks.values())
        on_wait = None if options.json else _print_wait
        with screen(plain=options.json).progress("moving", total) as advance:
            moving = Move(source, destination, _identity(urls[1]), on_moved=advance, on_wait=on_wait, stop=stop.is_set)
            return await moving.run(wait=wait, release=release)


def _print_wait(text: str) -> None:
    click.echo(text, err=True)


def _identity(url: str) -> str:
    """The same text from every folder and with any options: a later run recognizes its own tasks by it."""
    path = file_of(url)
    if path is not None:
        return f"sqlite:///{path.absolute()}"
    return masked(url)


async def _open(stack: AsyncExitStack, url: str, name: str) -> Store:
    store = connect(url, SystemClock(), name)
    await store.open()
    stack.push_async_callback(store.close)
    return store


def _report(result: MoveResult, to: str) -> None:
    moved = [plural(result.tasks, "task"), plural(len(result.schedules), "schedule")]
    if result.limits:
        moved.append(plural(len(result.limits), "limit"))
    click.echo(f"moved {', '.join(moved)} to {to}")
    if result.cancelled:
        click.echo(f"{result.cancelled} were cancelled on their way")
    if result.running:
        click.echo(f"{result.running} run and stay; requeued ones are moved by another run, or with --wait")
    for left, one, many in (
        (result.durable, "durable task stays", "durable tasks stay"),
        (result.linked, "task of a flow stays", "tasks of flows stay"),
    ):
        if left:
            stay = plural(len(left), one, many)
            click.echo(f"{stay}, to finish here (--wait waits): {shortened_list(left)}")
    for uuid, other in result.kept.items():
        click.echo(f"task {uuid} stays: its unique key is that of {other} there")
    if result.arriving:
        stay, them = ("task stays", "it") if result.arriving == 1 else ("tasks or schedules stay", "them")
        click.echo(
            f"{result.arriving} {stay}: a move that brought {them} here was not finished; run that one again first, or "
            "this one with --release if its store is lost"
        )
    if result.busy:
        click.echo(f"{result.busy} are in the hands of another move: when that is over, run this again")
    if result.unclear:
        click.echo(
            f"{plural(len(result.unclear), 'task')} on their way at the target, but nothing here says they are from "
            f"here: {result.unclear[0]} …; if they are (by another name of the store), run this with --release"
        )
    if result.stopped:
        click.echo("stopped before the end: run it again to go on")
