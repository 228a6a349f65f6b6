"""What a supervisor and its worker processes say to each other."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Literal

import msgspec

_ALONE = 5.0  # seconds an orphan has for giving back what it holds


class Config(msgspec.Struct, frozen=True):
    """What a worker process is told."""

    app: str
    store: str | None = None
    concurrency: int | None = None
    only: tuple[str, ...] = ()
    burst: bool = False
    stop_timeout: float = 25.0
    log_format: Literal["console", "json"] | None = None
    foreground: bool = False  # may read from the terminal: `breakpoint()` in `dev`


class Report(msgspec.Struct, omit_defaults=True):
    """What it says, a line each."""

    ready: str = ""  # its part of the ready line
    error: str = ""  # why it cannot start
    turns: int = 0  # times it has asked the store so far
    stopping: bool = False  # it takes no more tasks
    patience: float = 60.0  # seconds within which it asks, also when there is nothing to do
    over: bool = False  # it has been told to end, and has


class Parent:
    """The way to the one that started this process."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._socket.setblocking(True)

    def tell(self, report: Report) -> None:
        with contextlib.suppress(OSError):  # it is gone, or too busy to listen
            self._socket.send(msgspec.json.encode(report) + b"\n", socket.MSG_DONTWAIT)

    def watch(self, hurry: Callable[[], object]) -> None:
        """On a thread of its own: user code may block the loop, and an orphan must not work on."""

        def wait() -> None:
            with contextlib.suppress(OSError):
                while self._socket.recv(64):  # any word means: now
                    hurry()
            timer = threading.Timer(_ALONE, os._exit, (1,))
            timer.daemon = True
            timer.start()
            hurry()

        threading.Thread(target=wait, name="onthedot-parent", daemon=True).start()
