"""A worker process, as the one that started it sees it."""

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

from onthedot.supervisor.heartbeats import ChildHeartbeat
from onthedot.supervisor.messages import LaunchOptions, SessionSpec, SupervisorMessage, WorkerReport

STARTING = 60.0  # seconds until one that says nothing is not even starting
SILENT = 5.0  # seconds without a word from its event loop: it does not get on
_LINE = 2**24  # bytes; a session names all of its sources
_EOF = 0.05  # seconds for the last words of one that is dead; what it has forked may hold its end of the line
_DUMP = 1.0  # seconds for writing its stacks
KILL_AFTER = 3.0  # seconds beyond stop_timeout: what had to be cancelled may tidy up and go back


class WorkerProcess:
    """One process. It dies when its supervisor does: the socket between them ends."""

    def __init__(
        self,
        config: LaunchOptions,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.config = config
        self._writer = writer  # the child watches its other end
        self.process = process
        self.ready: asyncio.Event = asyncio.Event()
        now = time.monotonic()
        self.told: WorkerReport = WorkerReport()
        self.error: str = ""
        self.began: float = now
        self.heard: float = now
        self.turned: float = now
        self.stalled: bool = False  # it was killed for that
        self.over: bool = False  # it ended because it was told to, by whomever
        self._keeping: ChildHeartbeat | None = None  # its session, if a store wants beats
        self._listening = asyncio.create_task(self._listen(reader))
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    async def start(cls, config: LaunchOptions) -> WorkerProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            fd = theirs.fileno()
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "onthedot", "_child", str(fd), msgspec.json.encode(config).decode(),
                pass_fds=(fd,), process_group=None if config.foreground else 0,
            )  # fmt: skip
        return cls(config, process, *await asyncio.open_connection(sock=ours, limit=_LINE))

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            async for line in reader:
                report = msgspec.json.decode(line, type=WorkerReport)
                if report.session is not None or report.left:
                    self._keep(report.session)
                    continue
                self.heard = time.monotonic()
                if report.turns != self.told.turns:
                    self.turned = self.heard
                if report.ready:
                    self.ready.set()
                self.error, self.over = report.error or self.error, report.over
                self.told = report if not self.told.ready else msgspec.structs.replace(report, ready=self.told.ready)

    def _keep(self, session: SessionSpec | None) -> None:
        """Beats for this one from now on, and for no other."""
        kept = self._keeping
        if kept is not None and session is not None and kept.session.name == session.name:
            kept.session = session
            return
        if kept is not None:
            kept.end(died=session is not None)  # a new name without an end of the old one: it was lost
        self._keeping = None if session is None else ChildHeartbeat(session, self._say)

    def _say(self, word: SupervisorMessage) -> None:
        if self.alive:
            self._writer.write(msgspec.json.encode(word) + b"\n")

    async def _watch(self) -> None:
        """Sees it die. What it ran is anybody's from that moment on."""
        stalled = asyncio.create_task(self._mind_stalls())
        await self.process.wait()
        stalled.cancel()
        await asyncio.wait([self._listening], timeout=_EOF)
        if self._keeping is not None:
            self._keeping.end(died=True)

    async def _mind_stalls(self) -> None:
        """A loop that says nothing for stall_limit will not settle what it holds. faulthandler names the line."""
        await self.ready.wait()
        limit, late = self.config.stall_limit or math.inf, 0
        while late < 2:  # what it said while this process was stopped lies there still: read that first
            await asyncio.sleep(min(3600, max(1, self.heard + limit - time.monotonic())))
            late = late + 1 if time.monotonic() - self.heard > limit else 0
        self.stalled = True
        self.tell(signal.SIGABRT)
        await asyncio.sleep(_DUMP)
        self.tell(signal.SIGKILL)

    async def started(self, patience: float | None = None) -> bool:
        """Waits until it is ready. False: it has ended, or is too slow."""
        ready, ended = asyncio.ensure_future(self.ready.wait()), asyncio.ensure_future(self.ended())
        await asyncio.wait([ready, ended], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        for waiting in (ready, ended):
            waiting.cancel()
        return self.ready.is_set()

    async def ended(self) -> int:
        code = await self.process.wait()
        await self._watching
        await asyncio.wait([self._listening], timeout=1)  # its last words
        self._writer.close()
        return code

    def trouble(self) -> str:
        """Why it should get no traffic; "" if it gets on: its loop speaks, and it asks the store."""
        if not self.alive:
            return "has ended"
        if not self.ready.is_set():
            return "is starting"
        if self.told.stopping:
            return "is stopping"
        silent, idle = time.monotonic() - self.heard, time.monotonic() - self.turned
        if silent > SILENT:
            return f"has not been heard of for {silent:.0f} s: something blocks its event loop"
        return f"has not reached the store for {idle:.0f} s" if idle > self.told.patience else ""

    def tell(self, number: signal.Signals) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def hurry(self) -> None:
        """What still runs is cancelled and goes back. Not by a second signal: two of a kind may come as one."""
        if self.alive:
            self._say(SupervisorMessage(hurry=True))

    async def stop(self) -> bool:
        """Running tasks finish or go back. False: it had to be killed."""
        self.tell(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ended(), self.config.stop_timeout + KILL_AFTER)
            return True
        self.tell(signal.SIGKILL)
        await self.ended()
        return False


def how(code: int) -> str:
    """An exit code, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


@contextlib.contextmanager
def signals(handlers: Mapping[signal.Signals, Callable[[], None]]) -> Generator[None, None, None]:
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
