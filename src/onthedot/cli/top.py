"""``onthedot top``: what goes on, as it happens."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import click
import msgspec

from onthedot.cli.interrupt import ctrl_c
from onthedot.cli.options import GlobalOptions, shared
from onthedot.cli.output import RichScreen, Screen, screen
from onthedot.cli.target import shown, target, with_operations
from onthedot.cli.top_view import picture
from onthedot.operations import Operations
from onthedot.operations.live_view import LiveSnapshot

_FIRST = 1.0  # seconds after which a single picture has something to say about rates

Draw = Callable[[LiveSnapshot], None]


@click.command()
@click.option("--once", is_flag=True, help="One plain picture, after a second; so it is in a pipe.")
@click.option("--frames", type=click.IntRange(1), metavar="N", help="So many pictures, then exit.")
@click.option("--every", type=click.FloatRange(0.05), default=0.5, show_default=True, help="Seconds between two.")
@shared("store", "name", "app", "json")
@click.pass_obj
def top(said: GlobalOptions, once: bool, frames: int | None, every: float) -> None:
    """What goes on, as it happens: throughput, sources, workers, the newest failures.

    q or Ctrl+C leaves, p holds the picture. --json writes an object a line, until Ctrl+C or for --frames N.
    """
    url, name = target(said)
    title, out = f"{name} · {shown(url)}", Screen() if said.json or once or frames else screen()
    if once or not (frames or said.json or out.live):
        frames, every = 1, _FIRST

    def write(frame: LiveSnapshot) -> None:
        if said.json:
            click.echo(msgspec.json.encode(frame, enc_hook=str))
        else:
            out.pictured(*picture(out, title, frame))

    async def work(operations: Operations) -> None:
        if isinstance(out, RichScreen):
            await _live(operations, out, title, every)
        else:
            with ctrl_c() as asked:
                await _watch(operations, write, every, frames, asked)

    with_operations(said, work)


async def _watch(operations: Operations, draw: Draw, every: float, frames: int | None, asked: asyncio.Event) -> None:
    watch = operations.watch()
    first = await watch.look()
    if frames is None:
        draw(first)
    while frames is None or frames > 0:
        with suppress(TimeoutError):
            await asyncio.wait_for(asked.wait(), every)
        if asked.is_set():
            return
        draw(await watch.look())
        frames = None if frames is None else frames - 1


async def _live(operations: Operations, out: RichScreen, title: str, every: float) -> None:
    with ctrl_c() as asked, out.whole() as show:
        leased, last = False, None

        def draw(frame: LiveSnapshot) -> None:
            nonlocal last
            if not leased:
                last = frame
                show(*picture(out, title, frame, out.height))

        def pressed(key: str) -> None:
            nonlocal leased
            if key in "qQ":
                asked.set()
            elif key in "pP" and last is not None:
                leased = not leased
                show(*picture(out, f"{title} · held, p goes on" if leased else title, last, out.height))

        with _keys(pressed):
            await _watch(operations, draw, every, None, asked)


@contextmanager
def _keys(pressed: Callable[[str], None]) -> Generator[None, None, None]:
    """Told one by one, as long as somebody sits at a terminal; elsewhere there are none."""
    try:
        import termios
        import tty
    except ImportError:  # Windows
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    fd = sys.stdin.fileno()
    before, loop = termios.tcgetattr(fd), asyncio.get_running_loop()

    def read() -> None:
        key = os.read(fd, 1).decode(errors="replace")
        if key:
            pressed(key)
        else:
            loop.remove_reader(fd)  # the terminal is gone, and would be readable for ever

    tty.setcbreak(fd)
    loop.add_reader(fd, read)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
