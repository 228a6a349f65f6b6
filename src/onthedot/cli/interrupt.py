"""Ctrl+C for commands that finish what they have begun."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress

import click

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_event(message: str = "") -> Generator[asyncio.Event, None, None]:
    """Yield an event that the first Ctrl+C or SIGTERM sets; the next one ends the process as usual.

    message: printed at the first one.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def remove_handlers() -> None:
        for number in _SIGNALS:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)

    def on_signal() -> None:
        stop.set()
        remove_handlers()
        if message:
            click.echo(message, err=True)

    with suppress(NotImplementedError):  # Windows: Ctrl+C raises KeyboardInterrupt instead
        for number in _SIGNALS:
            loop.add_signal_handler(number, on_signal)
    try:
        yield stop
    finally:
        remove_handlers()
