"""The fork server: the parent process of all pool children. It starts, reaps and kills them.

It runs no tasks itself. So it can kill a process group even if the worker was killed or a task holds the interpreter
lock, and children are forked from a small process that has imported the library. When a child ends, its process group
is killed before its process id can be reused, so nothing that the child forked remains.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Literal, NamedTuple

Method = Literal["forkserver", "spawn"]
METHODS: tuple[Method, ...] = ("forkserver", "spawn")

_COMMAND = struct.Struct("!cI")  # launch (with a descriptor) or kill a number; finish within so many ms
_EXIT = struct.Struct("!Ii")  # a number, and the status with which it ended
_LAUNCH = b"L"
_KILL = b"K"
_FINISH = b"F"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class ChildExit(NamedTuple):
    """The end of a child."""

    number: int
    status: int  # exit code, or the negative number of a signal


def resolve_method(method: Method | None) -> Method:
    """The given method, else the one of ``multiprocessing.set_start_method()``, else the faster one."""
    if method is not None:
        return method
    return "spawn" if multiprocessing.get_start_method(allow_none=True) == "spawn" else "forkserver"


def describe_exit(status: int) -> str:
    """The end of a process, for messages.

    >>> describe_exit(3), describe_exit(-9)
    ('ended with exit code 3', 'was killed by signal 9 (SIGKILL)')
    """
    if status >= 0:
        return f"ended with exit code {status}"
    with suppress(ValueError):
        return f"was killed by signal {-status} ({signal.Signals(-status).name})"
    return f"was killed by signal {-status}"


def is_supported() -> bool:
    """Whether this system has sessions, process groups and descriptor passing: not on Windows."""
    return all(hasattr(os, name) for name in ("fork", "setsid", "killpg")) and hasattr(socket, "send_fds")


class ForkServer:
    """The worker's side of a fork server. It belongs to the process that created it."""

    def __init__(self, method: Method, entry_point: str, folder: str = "") -> None:
        """entry_point: the module whose ``main(descriptor)`` runs in a child. folder: removed if this process dies."""
        self._control, theirs = socket.socketpair()
        with theirs:
            command = _python(__name__, theirs.fileno(), os.getpid(), method, entry_point, folder)
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own module
                command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._control.setblocking(False)
        self._unread = b""

    def fileno(self) -> int:
        return self._control.fileno()

    def launch(self, number: int, pipe: socket.socket) -> None:
        """Starts a child that communicates over this pipe; the caller closes its copy."""
        with suppress(OSError):  # the fork server is gone: exits() returns None
            socket.send_fds(self._control, [_COMMAND.pack(_LAUNCH, number)], [pipe.fileno()])

    def kill(self, number: int) -> None:
        """Kills the child and all that it has forked, unless it has ended by itself."""
        with suppress(OSError):
            self._control.send(_COMMAND.pack(_KILL, number))

    def exits(self) -> list[ChildExit] | None:
        """The children that have ended since the last call; None if the fork server and all of them are gone."""
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        self._unread += data
        complete = len(self._unread) // _EXIT.size * _EXIT.size
        exits = [ChildExit(*fields) for fields in _EXIT.iter_unpack(self._unread[:complete])]
        self._unread = self._unread[complete:]
        return exits

    def wait_for_exit(self, timeout: float) -> int | None:
        """The status of the next child that ends, within so many seconds; for code without an event loop."""
        self._control.settimeout(timeout)
        with suppress(TimeoutError):
            for child_exit in self.exits() or ():
                return child_exit.status
        return None

    def finish(self, grace: float) -> None:
        """Ends the fork server; children that remain after `grace` seconds are killed. Does not wait."""
        with suppress(OSError):
            self._control.send(_COMMAND.pack(_FINISH, int(grace * 1000)))
        self._control.close()
        # Its exit status must be collected, or it stays as a zombie.
        try:
            threading.Thread(target=self._process.wait, name="onthedot-fork-server-exit", daemon=True).start()
        except RuntimeError:  # the interpreter ends, and init collects it
            self._process.returncode = 0

    def after_fork(self) -> None:
        """In a fork of the worker: close its copy, so that the fork server notices the end of the worker."""
        self._control.close()
        self._process.returncode = 0


def _python(module: str, *arguments: object) -> list[str]:
    """A command that runs main() of a module, found where this process found it."""
    # The module's name comes first, for people who read a list of processes.
    code = f"'{module}'; import sys; sys.path[:] = {sys.path!r}; "
    code += f"from {module} import main; main(*sys.argv[1:])"
    flags: list[str] = getattr(subprocess, "_args_from_interpreter_flags", list)()
    return [sys.executable, *flags, "-c", code, *map(str, arguments)]


# -- in the fork server's own process


class _ForkServerLoop:
    def __init__(self, control: socket.socket, worker: int, run_child: Callable[[int], object]) -> None:
        self._control = control
        self._run_child = run_child
        self._pids: dict[int, int] = {}  # by number
        self._deadline: float | None = None  # set while it ends: then all children must have ended
        self.finished_by_worker = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ, self._on_command)
        self._child_signal, self._wakeup = socket.socketpair()
        self._child_signal.setblocking(False)
        self._wakeup.setblocking(False)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake_up)
        self._selector.register(self._child_signal, selectors.EVENT_READ, self._reap)
        if hasattr(os, "pidfd_open"):  # because a fork of the worker may hold the other end of `control`
            pidfd = os.pidfd_open(worker)
            self._selector.register(pidfd, selectors.EVENT_READ, lambda: self._on_worker_gone(pidfd))

    def run(self) -> None:
        while self._deadline is None or self._pids:
            left = None if self._deadline is None else self._deadline - time.monotonic()
            if left is not None and left <= 0:
                for number in list(self._pids):
                    self._kill(number)
                left = 0.1
            for key, _ in self._selector.select(left):
                key.data()

    def _on_command(self) -> None:
        data = b""
        descriptors: list[int] = []
        with suppress(ConnectionError):
            data, descriptors, _, _ = socket.recv_fds(self._control, _COMMAND.size, 1)
        if len(data) < _COMMAND.size:
            self._on_worker_gone(self._control)
            return
        command, number = _COMMAND.unpack(data)
        if command == _LAUNCH:
            self._launch(number, descriptors[0])
        elif command == _KILL:
            self._kill(number)
        else:
            self.finished_by_worker = True
            self._deadline = time.monotonic() + number / 1000

    def _launch(self, number: int, descriptor: int) -> None:
        fork_server = os.getpid()
        try:
            pid = os.fork()
        except OSError:  # too many processes, or no memory: only this launch has failed
            os.close(descriptor)
            self._control.send(_EXIT.pack(number, 1))
            return
        if pid:
            self._pids[number] = pid
            os.close(descriptor)
            return
        os.setsid()
        _die_with(fork_server)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (self._selector, self._control, self._child_signal, self._wakeup):
            each.close()
        self._run_child(descriptor)
        sys.exit()

    def _kill(self, number: int) -> None:
        if (pid := self._pids.get(number)) is not None:
            _kill_group(pid)
            os.kill(pid, signal.SIGKILL)  # in case it has not called setsid() yet

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            while self._child_signal.recv(4096):
                pass
        numbers = {pid: number for number, pid in self._pids.items()}
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                _kill_group(pid)
                if (number := numbers.get(pid)) is not None:
                    del self._pids[number]
                    with suppress(OSError):  # the worker is gone
                        self._control.send(_EXIT.pack(number, os.waitstatus_to_exitcode(status)))

    def _on_worker_gone(self, source: socket.socket | int) -> None:
        """The worker has ended. After a finish() its children keep their grace time."""
        self._selector.unregister(source)
        if self._deadline is None:
            self._deadline = time.monotonic()


def main(descriptor: str, worker: str, method: Method, entry_point: str, folder: str = "") -> None:
    """The program of the fork server."""
    for each in (signal.SIGINT, signal.SIGTERM):  # a terminal and systemd send them to every process
        signal.signal(each, signal.SIG_IGN)
    run_child: Callable[[int], object] = partial(_execute, entry_point)
    if method == "forkserver":
        run_child = import_module(entry_point).main
        gc.collect()
        gc.freeze()  # so that children share its pages
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans of tasks become its children, so it can reap them
    if os.getppid() == int(worker):
        loop = _ForkServerLoop(socket.socket(fileno=int(descriptor)), int(worker), run_child)
        loop.run()
        if folder and not loop.finished_by_worker:
            shutil.rmtree(folder, ignore_errors=True)


def _wake_up(number: int, frame: FrameType | None) -> None:
    """Needed so that the interpreter writes a byte to the wake-up descriptor."""


def _execute(entry_point: str, descriptor: int) -> None:
    os.set_inheritable(descriptor, True)
    command = _python(entry_point, descriptor)
    os.execv(command[0], command)  # noqa: S606 - our own interpreter, our own module


def _die_with(parent: int) -> None:
    """If the fork server is killed, the child is, too. On other systems than Linux the worker does that."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS refuses where only zombies are left
        os.killpg(leader, signal.SIGKILL)
