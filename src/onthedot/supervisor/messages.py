"""What a supervisor and its worker processes say to each other."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

_ALONE = 5.0  # seconds an orphan has for giving back what it holds
_PATIENT = 1_000_000  # bytes that wait for a supervisor that does not listen


class LaunchOptions(msgspec.Struct, frozen=True):
    """What a worker process is told."""

    app: str
    store: str | None = None
    concurrency: int | None = None
    only: tuple[str, ...] = ()
    burst: bool = False
    stop_timeout: float = 25.0
    log_format: Literal["console", "json"] | None = None
    foreground: bool = False  # may read from the terminal: `breakpoint()` in `dev`
    stall_limit: float = 0.0  # seconds for which its event loop may say nothing; 0: for ever


class SessionSpec(msgspec.Struct, frozen=True):
    """What must be known to beat for it."""

    name: str
    info: bytes
    lease: int  # ms
    store: str
    app: str


class WorkerReport(msgspec.Struct, omit_defaults=True):
    """What it says, a line each."""

    ready: str = ""  # its part of the ready line
    error: str = ""  # why it cannot start
    turns: int = 0  # times it has asked the store so far
    stopping: bool = False  # it takes no more tasks
    patience: float = 60.0  # seconds within which it asks, also when there is nothing to do
    over: bool = False  # it has been told to end, and has
    session: SessionSpec | None = None  # then nothing else is said: somebody has to beat for this one
    left: str = ""  # likewise: this session is closed, or shall be


class SupervisorMessage(msgspec.Struct, omit_defaults=True):
    """What it is told, a line each."""

    hurry: bool = False  # what still runs is to be cancelled
    session: str = ""  # the store has answered to a beat for it, which was sent at this time of the monotonic clock
    sent: float = 0.0
    alive: bool = True
    cancel: tuple[str, ...] = ()


_word = msgspec.json.Decoder(SupervisorMessage)


class ParentChannel:
    """The way to the one that started this process, who beats for it if a store needs that: it is a Helper."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._lock = threading.Lock()
        self._unsent = b""
        self._half = b""  # of a line
        self._hurry: Callable[[], object] = bool
        self._kept = ""  # the session, and who wants to hear of it
        self._heard: Callable[[float, bool, Sequence[str]], None] | None = None
        self.store: Callable[[], tuple[str, str]] = lambda: ("", "")  # its URL, and the app's name

    def tell(self, report: WorkerReport) -> None:
        """What it has no time to hear now is told with the next report, in order; but not without end."""
        if len(self._unsent) < _PATIENT:
            self._unsent += msgspec.json.encode(report) + b"\n"
        with contextlib.suppress(OSError):  # it is gone, or too busy to listen
            self._unsent = self._unsent[self._socket.send(self._unsent, socket.MSG_DONTWAIT) :]

    # -- sessions

    def keep(self, session: str, info: bytes, lease: int, heard: Callable[[float, bool, Sequence[str]], None]) -> None:
        self._kept, self._heard = session, heard
        self.tell(WorkerReport(session=SessionSpec(session, info, lease, *self.store())))

    def leave(self, session: str) -> None:
        self._heard = None
        self.tell(WorkerReport(left=session))

    # -- hearing

    def watch(self, hurry: Callable[[], object]) -> None:
        """On a thread of its own: user code may block the loop, and an orphan must not work on."""
        self._hurry = hurry
        threading.Thread(target=self._wait, name="onthedot-parent", daemon=True).start()

    def _wait(self) -> None:
        said = select.poll()
        said.register(self._socket, select.POLLIN)
        while self.look():
            said.poll()
        timer = threading.Timer(_ALONE, os._exit, (1,))
        timer.daemon = True
        timer.start()
        self._hurry()

    def look(self) -> bool:
        """Takes in what has been said, on whichever thread. False: nobody is there any more."""
        with self._lock:
            try:
                while said := self._socket.recv(65_536, socket.MSG_DONTWAIT):
                    *lines, self._half = (self._half + said).split(b"\n")
                    for line in lines:
                        self._take(_word.decode(line))
            except BlockingIOError:
                return True
            except OSError:
                pass
            return False

    def _take(self, word: SupervisorMessage) -> None:
        if word.hurry:
            self._hurry()
        if self._heard is not None and word.session == self._kept:
            self._heard((time.monotonic() - word.sent) * 1000, word.alive, word.cancel)
