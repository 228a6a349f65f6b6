"""Ctrl+C, for commands that have something to say about it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress

import click

INTERRUPTED = 130  # what a shell calls the end by Ctrl+C


@contextmanager
def ctrl_c(answer: str = "") -> Generator[asyncio.Event, None, None]:
    """The first one (or a SIGTERM) is only told, so that what is under way is finished; the next ends it as ever.

    answer: what the one who pressed it reads.
    """
    asked, loop = asyncio.Event(), asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def forget() -> None:
        for number in numbers:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)

    def heard() -> None:
        asked.set()
        forget()
        if answer:
            click.echo(answer, err=True)

    with suppress(NotImplementedError):  # Windows: it comes as a KeyboardInterrupt
        for number in numbers:
            loop.add_signal_handler(number, heard)
    try:
        yield asked
    finally:
        forget()
