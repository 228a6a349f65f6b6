"""The worker's side of one pool child: its pipe, and the run that it has."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextvars import Context

from onthedot.executors.processes.messages import FrameReader, FromChild, ReturnedMessage, read_from_child
from onthedot.model.context import RunState


class QueuedRun:
    """A run that waits for a child, or for the answer of one."""

    __slots__ = ("answer", "child", "run")

    def __init__(self, run: RunState, answer: asyncio.Future[ReturnedMessage]) -> None:
        self.run: RunState = run
        self.answer: asyncio.Future[ReturnedMessage] = answer
        self.child: ChildConnection | None = None

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class ChildConnection:
    """The pipe to one child, on the event loop."""

    def __init__(
        self, number: int, pipe: socket.socket, on_message: Callable[[ChildConnection, FromChild], None]
    ) -> None:
        self.number = number
        self.pid = 0  # until it is ready
        self.current: QueuedRun | None = None
        self.tasks_left: int | None = None  # None: no bound
        self.boot_timer: asyncio.TimerHandle | None = None
        self.refused = False  # it has answered that it cannot take tasks
        self.problem = ""  # why it was killed before it was ready
        self.unread: bool = False  # it ended before it had read what was sent
        self._pipe = pipe
        self._on_message = on_message
        self._frames = FrameReader(read_from_child)
        self._unsent = memoryview(b"")
        self._loop = asyncio.get_running_loop()
        pipe.setblocking(False)
        # In an empty context: callbacks must not see the context of the task that needed this child.
        Context().run(self._loop.add_reader, pipe, self.receive)

    def send(self, data: bytearray) -> None:
        """Sends at once what fits into the pipe, and the rest when the child has read it."""
        try:
            sent = self._pipe.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # it has just ended: the fork server reports how
            self.unread = True
            return
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]
            Context().run(self._loop.add_writer, self._pipe, self._send_rest)

    def _send_rest(self) -> None:
        try:
            sent = self._pipe.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self._loop.remove_writer(self._pipe)

    def receive(self) -> None:
        """Passes on the messages that have arrived."""
        data = b""
        try:
            data = self._pipe.recv(262144)
        except BlockingIOError:
            return
        except OSError:  # a reset: the child closed its end before it had read everything
            self.unread = True
        if not data:
            self._loop.remove_reader(self._pipe)  # the fork server reports how it ended
        for message in self._frames.feed(data):
            self._on_message(self, message)

    def close(self) -> None:
        """Closes the pipe; an idle child ends then."""
        if self.boot_timer is not None:
            self.boot_timer.cancel()
        if self._pipe.fileno() >= 0:
            self._loop.remove_reader(self._pipe)
            self._loop.remove_writer(self._pipe)
            self._pipe.close()

    def after_fork(self) -> None:
        self._pipe.close()  # only this copy: the loop's readers are shared with the parent
