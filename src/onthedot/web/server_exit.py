"""The end of the web server that this code runs in.

A server that stops waits for its responses, and a response that streams waits for the next event: neither would end.
uvicorn sends no message to such a response, so its state is read.
"""

from __future__ import annotations

import asyncio
import signal
import weakref
from collections.abc import Callable
from typing import Any, cast

_LOOK = 0.25  # seconds between two looks


def is_known() -> bool:
    """Whether the server of this process shows that it stops."""
    return _server() is not None


def _server() -> Any:
    """uvicorn's, found by its signal handler; None: another server, or one without signal handlers."""
    handler = signal.getsignal(signal.SIGTERM)
    server = getattr(handler, "__self__", None)
    if isinstance(getattr(server, "should_exit", None), bool):
        return server
    return None


def _is_stopping() -> bool:
    server = _server()
    if server is None:
        return False
    listeners = cast("list[asyncio.Server]", getattr(server, "servers", []))
    return server.should_exit or any(not listener.is_serving() for listener in listeners)  # or it had enough requests


class ExitWatch:
    """Calls back when the server stops. One timer serves all responses of an event loop."""

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[], None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, key: object, callback: Callable[[], None]) -> None:
        self._callbacks[key] = callback
        if self._timer is None:
            self._look_later()

    def remove(self, key: object) -> None:
        self._callbacks.pop(key, None)
        if not self._callbacks and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK, self._look)

    def _look(self) -> None:
        self._look_later()
        if _is_stopping():
            for callback in list(self._callbacks.values()):
                callback()


_watches: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ExitWatch] = weakref.WeakKeyDictionary()


def exit_watch() -> ExitWatch:
    """The watch of this event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _watches:
        _watches[loop] = ExitWatch()
    return _watches[loop]
