"""The parent of all pool children: it starts them, sees them end, and ends them.

It is a process of its own that runs nobody's tasks. So neither a worker that is killed, nor a task that holds the
interpreter's lock, keeps it from killing a whole process group; and a child is forked from something small and warm.
A child's group is killed whenever the child ends, before its number can be used again: nothing it forked goes on.
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
from typing import Literal

Method = Literal["forkserver", "spawn"]
METHODS: tuple[Method, ...] = ("forkserver", "spawn")

_ORDER = struct.Struct("!cI")  # launch (with a descriptor) or kill a number; finish within so many ms
_EVENT = struct.Struct("!Ii")  # a number has ended with this status
_LAUNCH, _KILL, _FINISH = b"L", b"K", b"F"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def method_of(said: Method | None) -> Method:
    """What was said here, else to multiprocessing, else the fast one."""
    if said is None:
        said = "spawn" if multiprocessing.get_start_method(allow_none=True) == "spawn" else "forkserver"
    return said


def describe_exit(status: int) -> str:
    """
    >>> describe_exit(3), describe_exit(-9)
    ('ended with exit code 3', 'was killed by signal 9 (SIGKILL)')
    """
    if status >= 0:
        return f"ended with exit code {status}"
    with suppress(ValueError):
        return f"was killed by signal {-status} ({signal.Signals(-status).name})"
    return f"was killed by signal {-status}"


def supported() -> bool:
    """Sessions, process groups and descriptors that can be handed over: not on Windows."""
    return all(hasattr(os, name) for name in ("fork", "setsid", "killpg")) and hasattr(socket, "send_fds")


class ForkServer:
    """The worker's end. It belongs to the process that made it."""

    def __init__(self, method: Method, entry_point: str, folder: str = "") -> None:
        """entry_point: the module whose ``main(descriptor)`` runs in a child. folder: removed if this process dies."""
        self._control, theirs = socket.socketpair()
        with theirs:
            command = _python(__name__, theirs.fileno(), os.getpid(), method, entry_point, folder)
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own module
                command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._control.setblocking(False)
        self._events = b""

    def fileno(self) -> int:
        return self._control.fileno()

    def launch(self, number: int, pipe: socket.socket) -> None:
        """A child that talks over this pipe; the caller closes its copy."""
        with suppress(OSError):  # gone: events() says so
            socket.send_fds(self._control, [_ORDER.pack(_LAUNCH, number)], [pipe.fileno()])

    def kill(self, number: int) -> None:
        """The child and all that it has forked, unless it has ended by itself."""
        with suppress(OSError):
            self._control.send(_ORDER.pack(_KILL, number))

    def events(self) -> list[tuple[int, int]] | None:
        """Numbers that have ended, with their status. None: the shepherd itself is gone, and the children with it."""
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        self._events += data
        whole = len(self._events) // _EVENT.size * _EVENT.size
        data, self._events = self._events[:whole], self._events[whole:]
        return list(_EVENT.iter_unpack(data))

    def last_end(self, timeout: float) -> int | None:
        """Waits for an end, where there is no event loop."""
        self._control.settimeout(timeout)
        with suppress(TimeoutError):
            for _, status in self.events() or ():
                return status
        return None

    def finish(self, grace: float) -> None:
        """Children that still are there after `grace` seconds are killed; then it ends. Waits for nothing."""
        with suppress(OSError):
            self._control.send(_ORDER.pack(_FINISH, int(grace * 1000)))
        self._control.close()
        # Somebody must take its status, or a dead entry stays in the table of processes.
        try:
            threading.Thread(target=self._process.wait, name="onthedot-shepherd-ends", daemon=True).start()
        except RuntimeError:  # the interpreter ends, and init takes it
            self._process.returncode = 0

    def after_fork(self) -> None:
        """In a fork of the worker: it is the worker's, and must see the worker's end."""
        self._control.close()
        self._process.returncode = 0


def _python(module: str, *arguments: object) -> list[str]:
    """Runs main() of a module of this package, found where this process found it."""
    # The first words are for those who look at a list of processes.
    code = f"'{module}'; import sys; sys.path[:] = {sys.path!r}; "
    code += f"from {module} import main; main(*sys.argv[1:])"
    flags: list[str] = getattr(subprocess, "_args_from_interpreter_flags", list)()
    return [sys.executable, *flags, "-c", code, *map(str, arguments)]


# -- in the shepherd's own process


class _ForkServerLoop:
    def __init__(self, control: socket.socket, worker: int, begin: Callable[[int], object]) -> None:
        self._control = control
        self._begin = begin
        self._pids: dict[int, int] = {}  # by number
        self._deadline: float | None = None  # set: an end is wanted, and then it must have come
        self.finishes = False  # because the worker said so
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ, self._ordered)
        self._ended, self._wakeup = socket.socketpair()
        self._ended.setblocking(False)
        self._wakeup.setblocking(False)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake_up)
        self._selector.register(self._ended, selectors.EVENT_READ, self._reap)
        if hasattr(os, "pidfd_open"):  # for a fork of the worker's may hold the other end of `control`
            pidfd = os.pidfd_open(worker)
            self._selector.register(pidfd, selectors.EVENT_READ, lambda: self._orphaned(pidfd))

    def watch(self) -> None:
        while self._deadline is None or self._pids:
            left = None if self._deadline is None else self._deadline - time.monotonic()
            if left is not None and left <= 0:
                for number in list(self._pids):
                    self._kill(number)
                left = 0.1
            for key, _ in self._selector.select(left):
                key.data()

    def _ordered(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, _ORDER.size, 1)
        except ConnectionError:
            data, descriptors = b"", []
        if len(data) < _ORDER.size:
            self._orphaned(self._control)
            return
        order, number = _ORDER.unpack(data)
        if order == _LAUNCH:
            self._launch(number, descriptors[0])
        elif order == _KILL:
            self._kill(number)
        else:
            self.finishes = True
            self._deadline = time.monotonic() + number / 1000

    def _launch(self, number: int, descriptor: int) -> None:
        fork_server = os.getpid()
        try:
            pid = os.fork()
        except OSError:  # too many processes, or no memory: that one launch has failed, and nobody else
            os.close(descriptor)
            self._control.send(_EVENT.pack(number, 1))
            return
        if pid:
            self._pids[number] = pid
            os.close(descriptor)
            return
        os.setsid()
        _die_with(fork_server)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (self._selector, self._control, self._ended, self._wakeup):
            each.close()
        self._begin(descriptor)
        sys.exit()

    def _kill(self, number: int) -> None:
        if (pid := self._pids.get(number)) is not None:
            _kill_group(pid)
            os.kill(pid, signal.SIGKILL)  # if it has not come to its setsid() yet

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            while self._ended.recv(4096):
                pass
        numbers = {pid: number for number, pid in self._pids.items()}
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                _kill_group(pid)
                if (number := numbers.get(pid)) is not None:
                    del self._pids[number]
                    with suppress(OSError):  # nobody listens any more
                        self._control.send(_EVENT.pack(number, os.waitstatus_to_exitcode(status)))

    def _orphaned(self, told_by: socket.socket | int) -> None:
        """The worker is gone. If it had said that it would go, its children have their time."""
        self._selector.unregister(told_by)
        if self._deadline is None:
            self._deadline = time.monotonic()


def main(descriptor: str, worker: str, method: Method, entry_point: str, folder: str = "") -> None:
    for each in (signal.SIGINT, signal.SIGTERM):  # a terminal and systemd tell them to the whole family
        signal.signal(each, signal.SIG_IGN)
    begin: Callable[[int], object] = partial(_execute, entry_point)
    if method == "forkserver":
        begin = import_module(entry_point).main
        gc.collect()
        gc.freeze()  # so that children share its pages
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what tasks leave behind ends up here, and is not left as a zombie
    if os.getppid() == int(worker):
        flock = _ForkServerLoop(socket.socket(fileno=int(descriptor)), int(worker), begin)
        flock.watch()
        if folder and not flock.finishes:
            shutil.rmtree(folder, ignore_errors=True)


def _wake_up(number: int, frame: FrameType | None) -> None:
    """What counts is the byte that the interpreter writes for it."""


def _execute(entry_point: str, descriptor: int) -> None:
    os.set_inheritable(descriptor, True)
    command = _python(entry_point, descriptor)
    os.execv(command[0], command)  # noqa: S606 - our own interpreter, our own module


def _die_with(parent: int) -> None:
    """If the shepherd is killed, the child goes too. Elsewhere than on Linux the worker does that."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS refuses where only zombies are left
        os.killpg(leader, signal.SIGKILL)
