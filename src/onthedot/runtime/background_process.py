"""A worker in another process: ``start(auto=True, threading=False)``.

The process imports the script as a pool child does, finds the app by its name and runs it. Both sides exchange messages
over a pipe and end with it; a fork server kills what would outlive the starting process.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from onthedot.errors import DeclarationError, SchedulerStateError
from onthedot.executors.processes.fork_server import ForkServer, describe_exit, is_supported, resolve_method
from onthedot.executors.processes.messages import (
    BootMessage,
    FrameReader,
    FromChild,
    KnownQuery,
    KnownReply,
    ReadyMessage,
    RefusedMessage,
    StopMessage,
    StoppedMessage,
    ToChild,
    frame,
    read_from_child,
    read_to_child,
)
from onthedot.model.executor_names import PROCESS
from onthedot.model.failures import decode_failure, encode_failure
from onthedot.runtime.user_code import load_modules

if TYPE_CHECKING:
    from onthedot.runtime.runtime import Runtime

CHILD_ENTRY_POINT = "onthedot.runtime.pool_child"  # by name: a fork server imports it in its own process
_BOOT_TIMEOUT = 60.0  # seconds to import the code and start
_GRACE = 2.0  # seconds beyond the stop timeout, until the process is killed


class BackgroundProcess:
    """The process as its starter sees it. It runs when the constructor returns, which raises what the child refused."""

    def __init__(self, boot: BootMessage, stop_timeout: float | None, folder: str = "") -> None:
        require_importable(boot)
        self._stop_timeout = stop_timeout
        self._lock = threading.Lock()
        self._frames = FrameReader(read_from_child)
        self._fork_server = ForkServer(resolve_method(None), CHILD_ENTRY_POINT, folder)
        self._pipe, theirs = socket.socketpair()
        with theirs:
            self._fork_server.launch(1, theirs)
        try:
            self._known = set(self._boot(boot))
        except BaseException:
            self.close()
            raise

    def _boot(self, boot: BootMessage) -> list[str]:
        self._send(boot)
        match self._receive(_BOOT_TIMEOUT):
            case ReadyMessage() as ready:
                return ready.known
            case RefusedMessage() as refused:
                failure = decode_failure(refused.error)
                assert failure is not None
                error = SchedulerStateError(
                    f"the background process cannot run app {boot.app!r}: {failure.type}: {failure.message}"
                )
                error.add_note(f"there:\n{failure.traceback}")
                raise error
            case None:
                raise SchedulerStateError(f"the background process {self._describe_end()} before it was ready")
            case other:
                raise AssertionError(other)

    def _send(self, message: ToChild) -> None:
        self._pipe.settimeout(_BOOT_TIMEOUT)
        with suppress(OSError):  # the process has ended: _receive returns None
            self._pipe.sendall(frame(message))

    def _receive(self, timeout: float | None) -> FromChild | None:
        """Returns the next message; None: the process has ended."""
        self._pipe.settimeout(timeout)
        try:
            while data := self._pipe.recv(65536):
                for message in self._frames.feed(data):
                    return message
        except TimeoutError:
            raise SchedulerStateError(f"the background process did not answer within {timeout:g} s") from None
        except OSError:
            pass
        return None

    def _describe_end(self) -> str:
        status = self._fork_server.wait_for_exit(1.0)
        if status is None:
            return "has ended"
        return describe_exit(status)

    def ensure_known(self, name: str, module: str) -> None:
        """Makes the process import a task that is declared here; unknown there, it would never run."""
        with self._lock:
            if name in self._known:
                return
            self._send(KnownQuery(name, module))
            answer = self._receive(_BOOT_TIMEOUT)
            if isinstance(answer, KnownReply) and answer.problem:
                raise DeclarationError(answer.problem)
            self._known.add(name)

    def alive(self) -> bool:
        try:
            self._pipe.setblocking(False)
            return self._pipe.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def stop(self, timeout: float | None) -> None:
        """Gives running tasks `timeout` seconds (stop_timeout), then kills the process and all that it has started."""
        if timeout is None:
            timeout = self._stop_timeout
        kill_after: float | None = None
        if timeout is not None:
            kill_after = timeout + _GRACE
        with self._lock, suppress(SchedulerStateError):
            self._send(StopMessage(timeout))
            while not isinstance(self._receive(kill_after), StoppedMessage | None):
                pass
        self.close()

    def close(self) -> None:
        self._pipe.close()
        self._fork_server.finish(0.2)

    def after_fork(self) -> None:
        self._pipe.close()
        self._fork_server.after_fork()


def require_importable(boot: BootMessage) -> None:
    if not is_supported():
        raise SchedulerStateError(
            "a background process needs process groups and descriptors that can be handed over, which this system does "
            "not have: use start(auto=True, threading=True)"
        )
    if "__main__" in boot.modules and not boot.code.has_script:
        raise SchedulerStateError(
            "there is no file behind __main__ that a background process could import: use start(auto=True, "
            "threading=True), or put the app into a module"
        )


# -- in the background process


def run_hosted(app: Runtime, pipe: socket.socket) -> None:
    """Runs the app until a stop message or the end of the pipe."""
    app.registry.owner.sync_executor = PROCESS
    asyncio.run(_serve(app, pipe))


async def _serve(app: Runtime, pipe: socket.socket) -> None:
    pipe.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        await app.host.start("main")
    except Exception as error:  # noqa: BLE001 - sent to the starter
        await loop.sock_sendall(pipe, frame(RefusedMessage(encode_failure(error, 1))))
        return
    await loop.sock_sendall(pipe, frame(ReadyMessage(os.getpid(), sorted(app.sources.known))))
    stop = asyncio.ensure_future(_answer_until_stop(app, pipe))
    while app.host.status == "running" and not stop.done():
        await asyncio.wait([stop], timeout=1)  # the worker may also end by itself
    timeout: float | None = None
    if stop.done():
        timeout = stop.result()
    stop.cancel()
    await app.host.stop(timeout)
    with suppress(OSError):
        await loop.sock_sendall(pipe, frame(StoppedMessage()))


async def _answer_until_stop(app: Runtime, pipe: socket.socket) -> float | None:
    """Answers messages until a stop or the end of the pipe. Returns the seconds that running tasks get."""
    loop = asyncio.get_running_loop()
    frames = FrameReader(read_to_child)
    with suppress(OSError):
        while data := await loop.sock_recv(pipe, 65536):
            for message in frames.feed(data):
                if isinstance(message, StopMessage):
                    return message.timeout
                if isinstance(message, KnownQuery):
                    await loop.sock_sendall(pipe, frame(KnownReply(_problem(app, message))))
    return None


def _problem(app: Runtime, request: KnownQuery) -> str:
    """Imports a task. Returns why it is unknown here; "": it is known."""
    from onthedot.runtime.pool_child import not_found

    try:
        if request.name not in app.sources.known and request.module != "__main__":
            load_modules([request.module])
    except Exception as error:  # noqa: BLE001 - sent to the process that declares it
        reason = f"{type(error).__name__}: {error}"
        return f"task {request.name!r}: the background process cannot import {request.module}: {reason}"
    if request.name in app.sources.known:
        return ""
    return not_found(request.name, request.module, "the background process")
