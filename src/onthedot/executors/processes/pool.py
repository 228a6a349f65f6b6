"""The executor of tasks in processes: the only one that can stop any task.

A pool of the standard library breaks as a whole when one of its processes is killed. Here each child has a pipe of its
own and one task at a time, so killing it affects that task only. The fork server starts and kills the children.
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
from onthedot.executors.processes.child import ChildConnection, QueuedRun
from onthedot.executors.processes.fork_server import (
    METHODS,
    ForkServer,
    Method,
    describe_exit,
    is_supported,
    resolve_method,
)
from onthedot.executors.processes.messages import (
    BootMessage,
    FromChild,
    ProgressMessage,
    RaisedMessage,
    ReadyMessage,
    RefusedMessage,
    ReturnedMessage,
    RunMessage,
    frame,
)
from onthedot.executors.processes.remote_errors import PoolChildDied, error_from_reply, remote_error
from onthedot.forks import register_fork_hooks
from onthedot.model.context import RunState, current_run
from onthedot.model.value_errors import SettingError

_GRACE = 1.0  # seconds for children to leave their lifespan when the pool closes
_RETIRE_TIMEOUT = 5.0  # the same for a child that is replaced


class Processes(Executor):
    """A pool of child processes that run tasks: ``App(executors={"gpu": Processes(2)})``.

    Each child has a pipe, a session and a process group of its own, so a task can be killed with all it has started.

    Args:
        slots: how many tasks run at once; by default as many as ``App(processes=…)``.
        method: how children start, "forkserver" (fast) or "spawn" (a fresh interpreter for each); by default the method
            of ``multiprocessing.set_start_method()``.
        max_tasks_per_child: a child is replaced after so many tasks; by default never.
        memory_limit: bytes of address space that a child may use; by default no limit.
        boot_timeout: seconds in which a child must have imported the code and entered lifespan().

    >>> Processes(2, max_tasks_per_child=100, memory_limit=8 << 30).slots
    2
    """

    hard = True
    encodes = True
    tells_start = True

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
            raise SettingError(f"method must be one of {', '.join(METHODS)}, not {method!r}")
        for name, value in (("slots", slots), ("max_tasks_per_child", max_tasks_per_child)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise SettingError(f"{name} must be a whole number from 1, not {value!r}")
        self.slots = slots
        self._method: Method | None = method
        self._max_tasks_per_child = max_tasks_per_child
        self._memory_limit = memory_limit
        self._boot_timeout = boot_timeout
        self._boot: Callable[[], BootMessage] | None = None
        self._entry_point = ""
        self._numbers = count(1)
        self._reset()
        register_fork_hooks(self)

    def _reset(self) -> None:
        self._fork_server: ForkServer | None = None
        self._children: dict[int, ChildConnection] = {}
        self._idle: list[ChildConnection] = []  # the last one has worked most recently
        self._booting = 0
        self._queue: deque[QueuedRun] = deque()
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

    async def run(self, call: Callable[..., object], *args: object) -> object:  # noqa: ARG002 - the child finds it by name
        """Runs the current task in a child. call, args: not used, since the child finds the function by name."""
        run = current_run()
        assert run is not None
        queued = QueuedRun(run, asyncio.get_running_loop().create_future())
        self._assign(queued)
        try:
            self._grow()
            returned = await queued.answer
        except (asyncio.CancelledError, DeclarationError, OSError):
            self._drop(queued)
            raise
        if returned.adds:
            run.spawned = [*(run.spawned or ()), *returned.adds]
        if returned.events:
            run.published = [*(run.published or ()), *returned.events]
        return EncodedResult(returned.result, returned.problem) if returned.result else None

    def _assign(self, queued: QueuedRun) -> None:
        if self._idle:
            self._send_run(self._idle.pop(), queued)
        else:
            self._queue.append(queued)

    def _send_run(self, child: ChildConnection, queued: QueuedRun) -> None:
        child.current = queued
        queued.child = child
        run = queued.run
        if run.on_begin is not None:
            run.on_begin()
            run.on_begin = None
        trace = None if run.span is None else run.span.context
        child.send(frame(RunMessage(run.source.module, run.record, run.lease, run.deadline_ms, trace)))

    def _drop(self, queued: QueuedRun) -> None:
        """Removes a cancelled run; if a child has it, the child and all it has forked are killed."""
        if queued.child is None:
            with suppress(ValueError):
                self._queue.remove(queued)
        elif queued.child.current is queued and self._fork_server is not None:
            queued.child.current = None
            self._end(queued.child)
            self._grow()

    # -- start of children

    def _grow(self, spare: int = 1) -> None:
        """Starts a child for each queued run, and a spare one, which is ready when another is killed."""
        while len(self._idle) + self._booting < len(self._queue) + spare:
            self._launch()

    def _launch(self) -> None:
        assert self._boot is not None
        boot = self._boot()
        _check_code(boot)
        loop = asyncio.get_running_loop()
        if self._fork_server is None:
            self._fork_server = ForkServer(resolve_method(self._method), self._entry_point)
            self._any_ready = False
            Context().run(loop.add_reader, self._fork_server, self._on_exits)
        boot.memory_limit = self._memory_limit
        ours, theirs = socket.socketpair()
        with theirs:
            child = ChildConnection(next(self._numbers), ours, self._on_message)
            self._fork_server.launch(child.number, theirs)
        child.tasks_left = self._max_tasks_per_child
        child.send(frame(boot))
        self._children[child.number] = child
        self._booting += 1
        child.boot_timer = loop.call_later(self._boot_timeout, self._on_boot_timeout, child, context=Context())

    def _on_boot_timeout(self, child: ChildConnection) -> None:
        child.problem = (
            f"its process was not ready after {self._boot_timeout:g} s: it imports the script, so what acts there "
            "belongs under `if __name__ == '__main__':`"
        )
        self._kill(child)

    # -- messages of children

    def _on_message(self, child: ChildConnection, message: FromChild) -> None:
        queued = child.current
        match message:
            case ReturnedMessage() if queued is not None:
                if not queued.answer.done():
                    queued.answer.set_result(message)
                self._on_free(child)
            case RaisedMessage() | RefusedMessage() if queued is not None:
                queued.fail(error_from_reply(queued.run, message))
                self._on_free(child)
            case ProgressMessage() if queued is not None:
                queued.run.context.progress(message.done, message.total)
            case ReadyMessage():
                child.pid = message.pid
                self._any_ready = True
                self._end_boot(child)
                if self._queue:
                    self._send_run(child, self._queue.popleft())
                else:
                    self._idle.insert(0, child)  # a spare one: children that have worked come first
            case RefusedMessage():
                child.refused = True
                self._boot_failed(lambda run: remote_error(run, message.error))
            case _:
                pass  # its run was cancelled

    def _on_free(self, child: ChildConnection) -> None:
        """Gives a free child its next run, puts it aside, or retires it."""
        if child.current is not None:
            child.current = None
            if child.tasks_left is not None:
                child.tasks_left -= 1
        if child.tasks_left == 0:
            self._retire(child)
            self._grow()
        elif self._queue:
            self._send_run(child, self._queue.popleft())
        else:
            self._idle.append(child)

    def _end_boot(self, child: ChildConnection) -> None:
        self._booting -= 1
        if child.boot_timer is not None:
            child.boot_timer.cancel()

    def _boot_failed(self, error: Callable[[RunState], BaseException]) -> None:
        """Fails the first queued run; the others are tried with the next child."""
        if self._queue:
            queued = self._queue.popleft()
            queued.fail(error(queued.run))

    # -- end of children

    def _retire(self, child: ChildConnection) -> None:
        """Lets a child leave its lifespan and end; if a thread of a task keeps it alive, it is killed."""
        del self._children[child.number]
        child.close()
        asyncio.get_running_loop().call_later(_RETIRE_TIMEOUT, self._kill, child, context=Context())

    def _end(self, child: ChildConnection) -> None:
        del self._children[child.number]
        self._kill(child)
        child.close()

    def _kill(self, child: ChildConnection) -> None:
        if self._fork_server is not None:
            self._fork_server.kill(child.number)

    def _on_exits(self) -> None:
        assert self._fork_server is not None
        exits = self._fork_server.exits()
        if exits is None:
            self._on_fork_server_gone()
            return
        for child_exit in exits:
            if (child := self._children.pop(child_exit.number, None)) is not None:
                self._on_child_gone(child, f"its process {describe_exit(child_exit.status)}")

    def _on_child_gone(self, child: ChildConnection, how: str) -> None:
        child.receive()  # its last messages may still be in the pipe
        child.close()
        if child in self._idle:
            self._idle.remove(child)
        elif not child.pid:
            self._end_boot(child)
            if not child.refused:
                self._boot_failed(lambda run: PoolChildDied(run, child.problem or f"{how} before it was ready"))
        elif child.current is not None and child.unread:  # it died before it got the run
            child.current.child = None
            self._assign(child.current)
        elif child.current is not None:
            child.current.fail(PoolChildDied(child.current.run, how))
            self._grow()
        self._grow(spare=0)

    def _on_fork_server_gone(self) -> None:
        """The fork server was killed, and its children with it, or they are killed here."""
        queue = self._queue
        usable = self._any_ready
        for child in list(self._children.values()):
            child.close()
            if child.pid:
                with suppress(OSError):
                    os.killpg(child.pid, signal.SIGKILL)
            if child.current is not None:
                child.current.fail(PoolChildDied(child.current.run, "the parent of its process was killed"))
        self._leave()
        if usable:
            self._queue = queue
            self._grow(spare=0)
            return
        for queued in queue:
            queued.fail(PoolChildDied(queued.run, "no process could be started: see the output on stderr"))

    def close(self) -> None:
        """Ends all children, without waiting for them."""
        for child in self._children.values():
            child.close()
        if self._fork_server is not None:
            self._leave()

    def _leave(self) -> None:
        assert self._fork_server is not None
        with suppress(RuntimeError):  # the loop is closed
            asyncio.get_running_loop().remove_reader(self._fork_server)
        self._fork_server.finish(_GRACE)
        self._reset()

    def after_fork(self) -> None:
        """In a fork of the worker: the pool stays the parent's."""
        for child in self._children.values():
            child.after_fork()
        if self._fork_server is not None:
            self._fork_server.after_fork()
        self._reset()


def _check_code(boot: BootMessage) -> None:
    if not is_supported():
        raise DeclarationError(
            "executor='process' needs process groups and descriptors that can be handed over, which this system does "
            "not have; executor='thread' works, but a thread cannot be killed"
        )
    if "__main__" in boot.modules and not boot.code.has_script:
        raise DeclarationError(
            "a task that was typed in, or given by `python -c`, has no file that another process could import: put it "
            "into a module, or use executor='thread' (start(threading=True))"
        )
