"""``onthedot move``: what is alive goes to another store, while workers are busy on both."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import asdict

import click

from onthedot.cli.interrupt import ctrl_c
from onthedot.cli.options import CliError, GlobalOptions, shared
from onthedot.cli.output import Screen, screen, write_json
from onthedot.cli.target import check_there, shown, target
from onthedot.clock.system import SystemClock
from onthedot.operations.move import Move, MoveResult, counted, plural
from onthedot.runtime.settings import store_url
from onthedot.stores import connect
from onthedot.stores.contract import Store
from onthedot.stores.schemes import file_of


@click.command()
@click.option("--from", "source", required=True, metavar="URL", help="The store that gives.")
@click.option("--to", "to", required=True, metavar="URL", help="The store that takes; it is made if it can be.")
@click.option("--wait", is_flag=True, help="Go on until nothing runs there any more, and take what comes back.")
@click.option(
    "--release",
    is_flag=True,
    help="Take what an earlier, unfinished move has left here or there as if it were finished.",
)
@click.option("--dry-run", is_flag=True, help="Only say what there is to move.")
@shared("name", "json")
@click.pass_obj
def move(said: GlobalOptions, source: str, to: str, wait: bool, release: bool, dry_run: bool) -> None:
    """Tasks that wait, schedules and the operator's limits to another store; workers go on, on both sides.

    A task runs once, wherever it is. What runs stays, and is moved if it comes back (--wait). What has ended stays.
    Killed in the middle, it goes on when it is run again. Ctrl+C: after the batch that is under way.
    """
    said.store = store_url(source)
    url, name = target(said)
    check_there(url, name)
    if store_url(to).startswith("memory:"):
        raise CliError("memory:// lives inside one process: nothing can be moved into another's")
    if dry_run:
        asyncio.run(_count(said, url, name))
        return
    moved = asyncio.run(_move(said, (url, to), name, wait=wait, release=release))
    if said.json:
        write_json(asdict(moved))
    else:
        _report(moved, shown(to))
    raise SystemExit(int(moved.stopped or bool(moved.kept or moved.arriving or moved.unclear or moved.busy)))


async def _count(said: GlobalOptions, url: str, name: str) -> None:
    async with AsyncExitStack() as stack:
        tasks, schedules, limits = await counted(await _opened(stack, url, name))
    if said.json:
        write_json({"tasks": tasks, "schedules": schedules, "limits": limits})
        return
    rows = [["task", source, str(count)] for source, count in sorted(tasks.items())]
    rows += [["schedule", each, "1"] for each in schedules] + [["limit", each, "1"] for each in limits]
    screen().table(("WHAT", "NAME", "WOULD MOVE"), rows)


async def _move(said: GlobalOptions, urls: tuple[str, str], name: str, *, wait: bool, release: bool) -> MoveResult:
    async with AsyncExitStack() as stack:
        asked = stack.enter_context(ctrl_c("stopping after this batch; Ctrl+C again stops now"))
        source, into = [await _opened(stack, url, name) for url in urls]
        total = sum((await counted(source))[0].values())
        with (Screen() if said.json else screen()).progress("moving", total) as tell:
            moving = Move(source, into, _called(urls[1]), tell=tell, stop=asked.is_set)
            if not said.json:
                moving.say = _say
            return await moving.run(wait=wait, release=release)


def _say(text: str) -> None:
    click.echo(text, err=True)


def _called(url: str) -> str:
    """The same name from every folder and with whatever options, since a later run knows by it what is its own."""
    path = file_of(url)
    return shown(url).partition("?")[0] if path is None else f"sqlite:///{path.absolute()}"


async def _opened(stack: AsyncExitStack, url: str, name: str) -> Store:
    store = connect(url, SystemClock(), name)
    await store.open()
    stack.push_async_callback(store.close)
    return store


def _report(moved: MoveResult, to: str) -> None:
    limits = f", {plural(len(moved.limits), 'limit')}" if moved.limits else ""
    click.echo(f"moved {plural(moved.tasks, 'task')}, {plural(len(moved.schedules), 'schedule')}{limits} to {to}")
    if moved.cancelled:
        click.echo(f"{moved.cancelled} were cancelled on their way")
    if moved.running:
        click.echo(f"{moved.running} run and stay; what comes back is moved by another run, or with --wait")
    for uuid, other in moved.kept.items():
        click.echo(f"task {uuid} stays: its unique key is that of {other} there")
    if moved.arriving:
        stay, them = ("task stays", "it") if moved.arriving == 1 else ("tasks or schedules stay", "them")
        click.echo(
            f"{moved.arriving} {stay}: a move that brought {them} here was not finished; run that one again first, or "
            "this one with --release if its store is lost"
        )
    if moved.busy:
        click.echo(f"{moved.busy} are in the hands of another move: when that is over, run this again")
    if moved.unclear:
        click.echo(
            f"{plural(len(moved.unclear), 'task')} on their way at the target, but nothing here says they are from "
            f"here: {moved.unclear[0]} …; if they are (by another name of the store), run this with --release"
        )
    if moved.stopped:
        click.echo("stopped before the end: run it again to go on")
