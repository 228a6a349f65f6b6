"""In processes of our own: the one executor that can end a task whatever it does, and that survives it.

A pool of the standard library breaks as a whole when one of its processes is killed. Here each child has a pipe of its
own and one task at a time; killing it costs that task and nobody else. The shepherd (`shepherd.py`) starts and kills.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from itertools import count

from onthedot.errors import DeclarationError
from onthedot.executors.contract import EncodedResult, Executor
from onthedot.executors.processes.fork_server import METHODS, ForkServer, Method, describe_exit, method_of, supported
from onthedot.executors.processes.messages import (
    BootMessage,
    FrameReader,
    FromChild,
    ProgressMessage,
    RaisedMessage,
    ReadyMessage,
    RefusedMessage,
    ReturnedMessage,
    RunMessage,
    frame,
    read_from_child,
)
from onthedot.executors.processes.remote_errors import PoolChildDied, error_from_reply, remote_error
from onthedot.forks import register_fork_hooks
from onthedot.model.context import RunState, current_run

_GRACE = 1.0  # seconds for a child to leave its lifespan when all ends
_LEAVE = 5.0  # and when it has had its number of tasks


class _Job:
    __slots__ = ("answer", "child", "run")

    def __init__(self, run: RunState, answer: asyncio.Future[ReturnedMessage]) -> None:
        self.run = run
        self.answer = answer
        self.child: _Child | None = None

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _Child:
    """The worker's end of one child."""

    def __init__(self, number: int, pipe: socket.socket, hear: Callable[[_Child, FromChild], None]) -> None:
        self.number = number
        self.pid = 0  # until it is ready
        self.job: _Job | None = None
        self.left: int | None = None  # tasks it may still take
        self.patience: asyncio.TimerHandle | None = None  # while it gets ready
        self.problem = ""  # why it was killed while it got ready
        self.unread = False  # it ended before it had read what was sent
        self._pipe = pipe
        self._hear = hear
        self._frames = FrameReader(read_from_child)
        self._unsent = memoryview(b"")
        self._loop = asyncio.get_running_loop()
        pipe.setblocking(False)
        Context().run(self._loop.add_reader, pipe, self.listen)  # not in the context of the task that needs it

    def send(self, data: bytearray) -> None:
        """A child that waits reads at once; what does not fit into the pipe follows."""
        try:
            sent = self._pipe.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # it has just ended: the shepherd will say how
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

    def listen(self) -> None:
        try:
            data = self._pipe.recv(262144)
        except BlockingIOError:
            return
        except OSError:  # a reset: there was something in its end of the pipe when that was closed
            data, self.unread = b"", True
        if not data:
            self._loop.remove_reader(self._pipe)  # how it ended comes from the shepherd
        for message in self._frames.feed(data):
            self._hear(self, message)

    def close(self) -> None:
        """An idle child takes this as the end."""
        if self.patience is not None:
            self.patience.cancel()
        if self._pipe.fileno() >= 0:
            self._loop.remove_reader(self._pipe)
            self._loop.remove_writer(self._pipe)
            self._pipe.close()

    def after_fork(self) -> None:
        self._pipe.close()  # only our copy: the loop's own list of readers is shared with the parent


class Processes(Executor):
    """Tasks in child processes, each of which has a pipe, a session and a process group of its own.

    ::

        App("shop", executors={"gpu": Processes(2, max_tasks_per_child=100, memory_limit=8 << 30)})

    slots: how many run at once. method: how children come about, "forkserver" (fast) or "spawn" (a fresh interpreter
    each); by default what ``multiprocessing.set_start_method()`` was told. max_tasks_per_child: then it is replaced.
    memory_limit: bytes of address space a child may have. boot_timeout: seconds in which a child must have imported the
    code and entered lifespan().
    """

    hard = True
    encodes = True
    tells_start = True  # a task's time counts from when a child has it

    def __init__(
        self,
        slots: int | None = None,
        *,
        method: Method | None = None,
        max_tasks_per_child: int | None = None,
        memory_limit: int | None = None,
        boot_timeout: float = 60.0,
    ) -> None:
        if method is not None and method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, not {method!r}")
        for name, value in (("slots", slots), ("max_tasks_per_child", max_tasks_per_child)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a whole number from 1, not {value!r}")
        self.slots = slots
        self._method: Method | None = method
        self._most_tasks = max_tasks_per_child
        self._memory_limit = memory_limit
        self._boot_timeout = boot_timeout
        self._boot: Callable[[], BootMessage] | None = None
        self._entry_point = ""
        self._numbers = count(1)
        self._forget()
        register_fork_hooks(self)

    def _forget(self) -> None:
        self._fork_server: ForkServer | None = None
        self._children: dict[int, _Child] = {}
        self._idle: list[_Child] = []  # the last one is the warmest
        self._booting = 0
        self._waiting: deque[_Job] = deque()
        self._any_ready = False

    @property
    def is_empty(self) -> bool:
        """No child and no fork server belong to it in this process."""
        return self._fork_server is None and not self._children

    def open(self, boot: Callable[[], BootMessage], entry_point: str) -> None:
        """Prepares the pool; the first task starts the first child.

        boot: makes the first message to a child. entry_point: the module whose ``main(descriptor)`` runs in a child.
        """
        self._boot = boot
        self._entry_point = entry_point

    # -- one call

    async def run(self, call: Callable[..., object], *args: object) -> object:  # noqa: ARG002 - it travels by name
        run = current_run()
        assert run is not None
        job = _Job(run, asyncio.get_running_loop().create_future())
        self._place(job)
        try:
            self._grow()
            returned = await job.answer
        except (asyncio.CancelledError, DeclarationError, OSError):
            self._drop(job)
            raise
        if returned.adds:
            run.spawned = [*(run.spawned or ()), *returned.adds]
        return EncodedResult(returned.result, returned.problem) if returned.result else None

    def _place(self, job: _Job) -> None:
        if self._idle:
            self._give(self._idle.pop(), job)
        else:
            self._waiting.append(job)

    def _give(self, child: _Child, job: _Job) -> None:
        child.job, job.child = job, child
        run = job.run
        if run.on_begin is not None:
            run.on_begin()
            run.on_begin = None
        child.send(frame(RunMessage(run.source.module, run.record, run.lease, run.deadline_ms)))

    def _drop(self, job: _Job) -> None:
        """Nobody wants it any more: the child and all it has forked are killed, the others do not notice."""
        if job.child is None:
            with suppress(ValueError):
                self._waiting.remove(job)
        elif job.child.job is job and self._fork_server is not None:
            job.child.job = None
            self._end(job.child)
            self._grow()

    # -- children come

    def _grow(self, spare: int = 1) -> None:
        """One for each that waits, and one more, which is warm when another is killed."""
        while len(self._idle) + self._booting < len(self._waiting) + spare:
            self._launch()

    def _launch(self) -> None:
        assert self._boot is not None
        boot = self._boot()
        _check_code(boot)
        loop = asyncio.get_running_loop()
        if self._fork_server is None:
            self._fork_server = ForkServer(method_of(self._method), self._entry_point)
            self._any_ready = False
            Context().run(loop.add_reader, self._fork_server, self._told)
        boot.memory_limit = self._memory_limit
        ours, theirs = socket.socketpair()
        with theirs:
            child = _Child(next(self._numbers), ours, self._heard)
            self._fork_server.launch(child.number, theirs)
        child.left = self._most_tasks
        child.send(frame(boot))
        self._children[child.number] = child
        self._booting += 1
        child.patience = loop.call_later(self._boot_timeout, self._too_slow, child, context=Context())

    def _too_slow(self, child: _Child) -> None:
        child.problem = (
            f"its process was not ready after {self._boot_timeout:g} s: it imports the script, so what acts there "
            "belongs under `if __name__ == '__main__':`"
        )
        self._kill(child)

    # -- what children say

    def _heard(self, child: _Child, message: FromChild) -> None:
        job = child.job
        match message:
            case ReturnedMessage() if job is not None:
                if not job.answer.done():
                    job.answer.set_result(message)
                self._next(child)
            case RaisedMessage() | RefusedMessage() if job is not None:
                job.fail(error_from_reply(job.run, message))
                self._next(child)
            case ProgressMessage() if job is not None:
                job.run.context.progress(message.done, message.total)
            case ReadyMessage():
                child.pid = message.pid
                self._any_ready = True
                self._no_longer_booting(child)
                if self._waiting:
                    self._give(child, self._waiting.popleft())
                else:
                    self._idle.insert(0, child)  # a spare one: those that have worked are warmer
            case RefusedMessage():
                child.problem = "refused"
                self._boot_failed(lambda run: remote_error(run, message.error))
            case _:
                pass  # it has been given up on

    def _next(self, child: _Child) -> None:
        """It has nothing to do: another task, a rest, or its end."""
        if child.job is not None:
            child.job = None
            if child.left is not None:
                child.left -= 1
        if child.left == 0:
            self._retire(child)
            self._grow()
        elif self._waiting:
            self._give(child, self._waiting.popleft())
        else:
            self._idle.append(child)

    def _no_longer_booting(self, child: _Child) -> None:
        self._booting -= 1
        if child.patience is not None:
            child.patience.cancel()

    def _boot_failed(self, error: Callable[[RunState], BaseException]) -> None:
        """Whoever waits longest hears of it; the next one is tried with the next child."""
        if self._waiting:
            job = self._waiting.popleft()
            job.fail(error(job.run))

    # -- children go

    def _retire(self, child: _Child) -> None:
        """It leaves its lifespan and ends; if a thread of a task's holds it, it is killed."""
        del self._children[child.number]
        child.close()
        asyncio.get_running_loop().call_later(_LEAVE, self._kill, child, context=Context())

    def _end(self, child: _Child) -> None:
        del self._children[child.number]
        self._kill(child)
        child.close()

    def _kill(self, child: _Child) -> None:
        if self._fork_server is not None:
            self._fork_server.kill(child.number)

    def _told(self) -> None:
        """The shepherd knows who has ended, and how."""
        assert self._fork_server is not None
        events = self._fork_server.events()
        if events is None:
            self._abandoned()
            return
        for number, status in events:
            if (child := self._children.pop(number, None)) is not None:
                self._gone(child, f"its process {describe_exit(status)}")

    def _gone(self, child: _Child, how: str) -> None:
        child.listen()  # its last words may still be in the pipe
        child.close()
        if child in self._idle:
            self._idle.remove(child)
        elif not child.pid:
            self._no_longer_booting(child)
            if child.problem != "refused":
                self._boot_failed(lambda run: PoolChildDied(run, child.problem or f"{how} before it was ready"))
        elif child.job is not None and child.unread:  # it died while it idled
            child.job.child = None
            self._place(child.job)
        elif child.job is not None:
            child.job.fail(PoolChildDied(child.job.run, how))
            self._grow()
        self._grow(spare=0)

    def _abandoned(self) -> None:
        """Somebody has killed the shepherd: so its children are dead, or must be."""
        children, waiting, usable = list(self._children.values()), self._waiting, self._any_ready
        for child in children:
            child.close()
            if child.pid:
                with suppress(OSError):
                    os.killpg(child.pid, signal.SIGKILL)
            if child.job is not None:
                child.job.fail(PoolChildDied(child.job.run, "the parent of its process was killed"))
        self._leave()
        if usable:
            self._waiting = waiting
            self._grow(spare=0)
        for job in () if usable else waiting:
            job.fail(PoolChildDied(job.run, "no process could be started: see what the interpreter said on stderr"))

    def close(self) -> None:
        """Idle children end; nothing is waited for, and nothing stays."""
        for child in self._children.values():
            child.close()
        if self._fork_server is not None:
            self._leave()

    def _leave(self) -> None:
        assert self._fork_server is not None
        with suppress(RuntimeError):  # the loop is closed
            asyncio.get_running_loop().remove_reader(self._fork_server)
        self._fork_server.finish(_GRACE)
        self._forget()

    def after_fork(self) -> None:
        """In a fork of the worker: the pool stays the parent's."""
        for child in self._children.values():
            child.after_fork()
        if self._fork_server is not None:
            self._fork_server.after_fork()
        self._forget()


def _check_code(boot: BootMessage) -> None:
    if not supported():
        raise DeclarationError(
            "executor='process' needs process groups and descriptors that can be handed over, which this system does "
            "not have; executor='thread' works, but a thread cannot be killed"
        )
    if "__main__" in boot.modules and not boot.code.has_script:
        raise DeclarationError(
            "a task that was typed in, or given by `python -c`, has no file that another process could import: put it "
            "into a module, or use executor='thread' (start(threading=True))"
        )
