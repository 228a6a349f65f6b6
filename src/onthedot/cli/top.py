"""``onthedot top``: throughput, sources, workers and failures, live."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import click
import msgspec

from onthedot.cli.interrupt import stop_event
from onthedot.cli.options import GlobalOptions, store_command
from onthedot.cli.output import RichScreen, json_without_secrets, screen
from onthedot.cli.target import target, with_operations
from onthedot.cli.top_view import picture
from onthedot.observability.log_format import clean_json
from onthedot.operations import Operations
from onthedot.operations.live_view import LiveSnapshot
from onthedot.stores.masked_url import masked

_NAMES = ("by_source", "workers.*.concurrency", "workers.*.max_retries", "workers.*.agent_keep")
_FIRST_RATES = 1.0  # seconds until a single picture has rates

Draw = Callable[[LiveSnapshot], None]


@store_command()
@click.option("--once", is_flag=True, help="One plain picture, after a second. Default in a pipe.")
@click.option("--frames", type=click.IntRange(1), metavar="N", help="Pictures to print, then exit.")
@click.option(
    "--every",
    type=click.FloatRange(0.05),
    metavar="SECONDS",
    default=0.5,
    show_default=True,
    help="Seconds between two.",
)
def top(options: GlobalOptions, once: bool, frames: int | None, every: float) -> None:
    """Throughput, sources, workers and the newest failures, live.

    q or Ctrl+C leaves, p freezes the picture. --json writes one object per line, until Ctrl+C or for --frames N.
    """
    url, name = target(options)
    title = f"{name} · {masked(url)}"
    out = screen(plain=bool(options.json or once or frames), utc=options.utc)
    if once or not (frames or options.json or out.live):
        frames = 1
        every = _FIRST_RATES

    def write(frame: LiveSnapshot) -> None:
        if options.json:
            click.echo(clean_json(msgspec.json.encode(json_without_secrets(frame, _NAMES)).decode()))
        else:
            out.lines_and_tables(*picture(out, title, frame))

    async def work(operations: Operations) -> None:
        if isinstance(out, RichScreen):
            await _live(operations, out, title, every)
        else:
            with stop_event() as stop:
                await _watch(operations, write, every, frames, stop)

    with_operations(options, work)


async def _watch(operations: Operations, draw: Draw, every: float, frames: int | None, stop: asyncio.Event) -> None:
    view = operations.watch()
    first = await view.look()
    if frames is None:
        draw(first)
    while frames is None or frames > 0:
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), every)
        if stop.is_set():
            return
        draw(await view.look())
        if frames is not None:
            frames -= 1


async def _live(operations: Operations, out: RichScreen, title: str, every: float) -> None:
    with stop_event() as stop, out.full_screen() as show:
        frozen = False
        last: LiveSnapshot | None = None

        def draw(frame: LiveSnapshot) -> None:
            nonlocal last
            if not frozen:
                last = frame
                show(*picture(out, title, frame, out.height))

        def on_key(key: str) -> None:
            nonlocal frozen
            if key in "qQ":
                stop.set()
            elif key in "pP" and last is not None:
                frozen = not frozen
                shown_title = f"frozen, p goes on · {title}" if frozen else title
                show(*picture(out, shown_title, last, out.height))

        with _keys(on_key):
            await _watch(operations, draw, every, None, stop)


@contextmanager
def _keys(on_key: Callable[[str], None]) -> Generator[None, None, None]:
    """Call back for every key, if stdin is a terminal."""
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
    before = termios.tcgetattr(fd)
    loop = asyncio.get_running_loop()

    def read() -> None:
        key = os.read(fd, 1).decode(errors="replace")
        if key:
            on_key(key)
        else:
            loop.remove_reader(fd)  # the terminal is gone, and would stay readable

    tty.setcbreak(fd)
    loop.add_reader(fd, read)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
