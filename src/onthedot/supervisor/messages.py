"""Messages between a supervisor and its worker processes: one JSON object per line, over a socket pair."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from onthedot.model.figures import Figures
from onthedot.supervisor.fleet_page import StoreSpec

_ORPHAN_TIMEOUT = 5.0  # seconds that a worker without its supervisor has to release its tasks
_MAX_UNSENT = 1_000_000  # bytes kept for a supervisor that does not read


class LaunchOptions(msgspec.Struct, frozen=True):
    """Options of a worker process."""

    app: str
    store: str | None = None
    concurrency: int | None = None
    only: tuple[str, ...] = ()
    burst: bool = False
    stop_timeout: float = 25.0
    log_format: Literal["console", "json"] | None = None
    log_level: str | None = None
    foreground: bool = False  # may read from the terminal: `breakpoint()` in `dev`
    stall_limit: float = 0.0  # seconds for which its event loop may be blocked; 0: no limit
    wait_for_store: float = 0.0  # seconds for which it waits at its start for a store that cannot be reached
    components: bool = True  # it runs the components, too: the first process does
    without: tuple[str, ...] = ()  # kinds of components that do not run
    metrics_sources: int = 0  # sources that its metrics keep apart; 0: it counts nothing
    page_fd: int = -1  # the socket on which it serves the page if no other process sees its store


class SessionSpec(msgspec.Struct, frozen=True):
    """A session as the supervisor needs it to send its heartbeats."""

    name: str
    info: bytes
    lease: int  # ms
    store: str
    app: str


class WorkerReport(msgspec.Struct, omit_defaults=True):
    """From a worker process to its supervisor. If it is about a session, the other fields are not set."""

    ready: str = ""  # its part of the banner
    stores: StoreSpec | None = None  # with `ready`
    error: str = ""  # why it cannot start
    turns: int = 0  # turns of its worker so far
    stopping: bool = False  # it takes no more tasks
    max_turn_gap: float = 60.0  # seconds between two turns, at most, also when there is nothing to do
    finished: bool = False  # it was asked to stop, and has stopped
    session: SessionSpec | None = None  # send heartbeats for this session from now on
    closed_session: str = ""  # this session is closed, or is to be closed
    watched_session: SessionSpec | None = None  # end this session if the process dies
    unwatched_session: str = ""  # this session has ended
    figures: Figures | None = None  # all that it has counted so far

    @property
    def is_about_session(self) -> bool:
        return bool(self.session or self.closed_session or self.watched_session or self.unwatched_session)


class SupervisorMessage(msgspec.Struct, omit_defaults=True):
    """From the supervisor to a worker process."""

    cancel_running: bool = False
    session: str = ""  # the store has answered a heartbeat for it
    sent: float = 0.0  # when that was sent, by the monotonic clock
    alive: bool = True
    cancel: tuple[str, ...] = ()  # uuids of tasks that are to be cancelled


OnAnswer: TypeAlias = Callable[[float, bool, Sequence[str]], None]
"""Age of the heartbeat in ms, whether the session is alive, tasks to cancel."""
_decode = msgspec.json.Decoder(SupervisorMessage).decode


class ParentChannel:
    """A worker's end of the socket to its supervisor.

    It implements the engine's `HeartbeatDelegate` for the worker, and `SessionWatcher` for its components.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._lock = threading.Lock()
        self._unsent = b""
        self._partial_line = b""
        self._on_cancel_running: Callable[[], object] | None = None
        self._session = ""
        self._on_answer: OnAnswer | None = None
        self.store: Callable[[], tuple[str, str]] = lambda: ("", "")  # its URL, and the app's name

    def send(self, report: WorkerReport) -> None:
        """Never blocks. Reports that the supervisor does not read are sent with the next one, up to a bound."""
        if len(self._unsent) < _MAX_UNSENT:
            self._unsent += msgspec.json.encode(report) + b"\n"
        with contextlib.suppress(OSError):  # the supervisor is gone, or does not read
            self._unsent = self._unsent[self._socket.send(self._unsent, socket.MSG_DONTWAIT) :]

    def close(self) -> None:
        self._socket.close()

    # -- HeartbeatDelegate

    def keep(self, session: str, info: bytes, lease: int, on_answer: OnAnswer) -> None:
        self._session = session
        self._on_answer = on_answer
        self.send(WorkerReport(session=SessionSpec(session, info, lease, *self.store())))

    def leave(self, session: str) -> None:
        self._on_answer = None
        self.send(WorkerReport(closed_session=session))

    def look(self) -> bool:
        """Read what has arrived, on any thread. False: the supervisor is gone."""
        with self._lock:
            try:
                while data := self._socket.recv(65_536, socket.MSG_DONTWAIT):
                    *lines, self._partial_line = (self._partial_line + data).split(b"\n")
                    for line in lines:
                        self._receive(_decode(line))
            except BlockingIOError:
                return True
            except OSError:
                pass
            return False

    # -- SessionWatcher

    def watch_session(self, session: str, lease: int, store: str) -> None:
        url, app = self.store()
        self.send(WorkerReport(watched_session=SessionSpec(session, b"", lease, store or url, app)))

    def unwatch_session(self, session: str) -> None:
        self.send(WorkerReport(unwatched_session=session))

    # -- reading

    def watch(self, on_cancel_running: Callable[[], object]) -> None:
        """Read on a thread of its own: user code may block the loop, and an orphan must stop working."""
        self._on_cancel_running = on_cancel_running
        threading.Thread(target=self._watch, name="onthedot-parent", daemon=True).start()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while self.look():
            poll.poll()
        timer = threading.Timer(_ORPHAN_TIMEOUT, os._exit, (1,))
        timer.daemon = True
        timer.start()
        self._cancel_running()

    def _receive(self, message: SupervisorMessage) -> None:
        if message.cancel_running:
            self._cancel_running()
        if self._on_answer is not None and message.session == self._session:
            self._on_answer((time.monotonic() - message.sent) * 1000, message.alive, message.cancel)

    def _cancel_running(self) -> None:
        if self._on_cancel_running is not None:
            self._on_cancel_running()
