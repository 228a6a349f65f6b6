"""A worker process as its supervisor sees it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator, Mapping

import msgspec

from onthedot.model.figures import Figures
from onthedot.supervisor.fleet_page import StoreSpec
from onthedot.supervisor.heartbeats import ChildHeartbeat, reap
from onthedot.supervisor.messages import LaunchOptions, SessionSpec, SupervisorMessage, WorkerReport

START_TIMEOUT = 60.0  # seconds that a new process has to become ready
MAX_SILENCE = 5.0  # seconds without a report; more means that something blocks its event loop
KILL_AFTER = 3.0  # seconds beyond stop_timeout, for cancelled tasks to clean up and be requeued
_MAX_LINE = 2**24  # bytes; a session names all of its sources
_EOF_TIMEOUT = 0.05  # seconds for the last reports of a dead process; programs it has forked may hold the socket open
_DUMP_TIME = 1.0  # seconds for faulthandler to write the stacks


class WorkerProcess:
    """One process. It ends when its supervisor does, because the socket between them is closed."""

    def __init__(
        self,
        config: LaunchOptions,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.config = config
        self._writer = writer  # the child watches the other end
        self.process = process
        self.ready: asyncio.Event = asyncio.Event()
        now = time.monotonic()
        self.report: WorkerReport = WorkerReport()  # the last one
        self.figures: Figures = Figures()  # that it has reported last
        self.banner: str = ""
        self.stores: StoreSpec | None = None
        self.error: str = ""
        self.started_at: float = now
        self.reported_at: float = now
        self.turned_at: float = now
        self.stalled: bool = False  # it was killed because its event loop was blocked
        self.finished: bool = False  # it ended because it was asked to, by anybody
        self._heartbeat: ChildHeartbeat | None = None  # of its session, if the store needs heartbeats
        self._watched: dict[str, SessionSpec] = {}  # sessions of its components, which send their own heartbeats
        self._reading = asyncio.create_task(self._read(reader))
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    async def start(cls, config: LaunchOptions) -> WorkerProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            fd = theirs.fileno()
            fds = (fd,) if config.page_fd < 0 else (fd, config.page_fd)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "onthedot", "_child", str(fd), msgspec.json.encode(config).decode(),
                pass_fds=fds, process_group=None if config.foreground else 0,
            )  # fmt: skip
        return cls(config, process, *await asyncio.open_connection(sock=ours, limit=_MAX_LINE))

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            async for line in reader:
                report = msgspec.json.decode(line, type=WorkerReport)
                if report.is_about_session:
                    self._on_session(report)
                    continue
                self.reported_at = time.monotonic()
                if report.turns != self.report.turns:
                    self.turned_at = self.reported_at
                if report.ready:
                    self.banner = report.ready
                    self.stores = report.stores
                    self.ready.set()
                if report.figures is not None:
                    self.figures = report.figures
                if report.error:
                    self.error = report.error
                self.finished = report.finished
                self.report = report

    def _on_session(self, report: WorkerReport) -> None:
        if report.watched_session is not None:
            self._watched[report.watched_session.name] = report.watched_session
        elif report.unwatched_session:
            self._watched.pop(report.unwatched_session, None)
        else:
            self._set_session(report.session)

    def _set_session(self, session: SessionSpec | None) -> None:
        """Send heartbeats for this session from now on, and for no other."""
        current = self._heartbeat
        if current is not None and session is not None and current.session.name == session.name:
            current.session = session
            return
        if current is not None:
            current.end(died=session is not None)  # a new session without the end of the old one: that was lost
        self._heartbeat = None
        if session is not None:
            self._heartbeat = ChildHeartbeat(session, self._send)

    def _send(self, message: SupervisorMessage) -> None:
        if self.alive:
            self._writer.write(msgspec.json.encode(message) + b"\n")

    async def _watch(self) -> None:
        """Wait for the end of the process. From then on other workers may run its tasks."""
        stall_check = asyncio.create_task(self._kill_if_stalled())
        await self.process.wait()
        stall_check.cancel()
        await asyncio.wait([self._reading], timeout=_EOF_TIMEOUT)
        if self._heartbeat is not None:
            self._heartbeat.end(died=True)
        for session in self._watched.values():
            reap(session)

    async def _kill_if_stalled(self) -> None:
        """A loop that is blocked for stall_limit will not settle its tasks. faulthandler names the line."""
        await self.ready.wait()
        limit = self.config.stall_limit or math.inf
        checks = 0
        while checks < 2:  # if this process was stopped itself, unread reports are read before the second check
            await asyncio.sleep(min(3600, max(1, self.reported_at + limit - time.monotonic())))
            checks += 1
            if time.monotonic() - self.reported_at <= limit:
                checks = 0
        self.stalled = True
        self.send_signal(signal.SIGABRT)
        await asyncio.sleep(_DUMP_TIME)
        self.send_signal(signal.SIGKILL)

    async def wait_ready(self, timeout: float | None = None) -> bool:
        """False: it has ended, or is not ready in time."""
        ready = asyncio.ensure_future(self.ready.wait())
        ended = asyncio.ensure_future(self.wait_ended())
        await asyncio.wait([ready, ended], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for pending in (ready, ended):
            pending.cancel()
        return self.ready.is_set()

    async def wait_ended(self) -> int:
        """Return the exit code."""
        code = await self.process.wait()
        await self._watching
        await asyncio.wait([self._reading], timeout=1)  # its last reports
        self._writer.close()
        return code

    def problem(self) -> str:
        """Why it should get no traffic; "" if its loop runs and its worker reaches the store."""
        if not self.alive:
            return "has ended"
        if not self.ready.is_set():
            return "is starting"
        if self.report.stopping:
            return "is stopping"
        now = time.monotonic()
        if now - self.reported_at > MAX_SILENCE:
            return f"has not been heard of for {now - self.reported_at:.0f} s: something blocks its event loop"
        if now - self.turned_at > self.report.max_turn_gap:
            return f"has not reached the store for {now - self.turned_at:.0f} s"
        return ""

    def send_signal(self, number: signal.Signals) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def cancel_running(self) -> None:
        """Cancel and requeue its running tasks. Not by a second SIGTERM: two equal signals may arrive as one."""
        self._send(SupervisorMessage(cancel_running=True))

    async def stop(self) -> bool:
        """Let running tasks finish, or cancel and requeue them after stop_timeout. False: it had to be killed."""
        self.send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.wait_ended(), self.config.stop_timeout + KILL_AFTER)
            return True
        self.send_signal(signal.SIGKILL)
        await self.wait_ended()
        return False


def describe_exit_code(code: int) -> str:
    """
    >>> describe_exit_code(3), describe_exit_code(-9)
    ('exit code 3', 'killed by SIGKILL')
    """
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


@contextlib.contextmanager
def signal_handlers(handlers: Mapping[signal.Signals, Callable[[], None]]) -> Generator[None, None, None]:
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
