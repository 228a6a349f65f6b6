"""Messages to systemd, for units with ``Type=notify`` and ``WatchdogSec``."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import asynccontextmanager, suppress

_log = logging.getLogger("onthedot.scheduler")
_AGAIN = 0.5  # seconds until a message is sent again that found the socket full


class ServiceManager:
    """Sends its messages to a datagram socket; without an address it sends none.

    address: of the socket; one that begins with @ is in Linux' abstract namespace
    interval: seconds between two messages of the watchdog; 0: there is no watchdog
    """

    def __init__(self, address: str = "", interval: float = 0.0) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._interval = interval
        self._is_failing = False  # and a warning says so

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> ServiceManager:
        """Takes the variables of systemd out, so that no process that tasks start sends messages for this one."""
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "0")
        is_ours = environment.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        if not address or not is_ours:
            return cls(address)
        if not (microseconds.isascii() and microseconds.isdecimal()):
            _log.warning("[systemd] WATCHDOG_USEC is no number, there is no watchdog: %s", microseconds)
            return cls(address)
        return cls(address, int(microseconds) / 2_000_000)

    def send(self, *lines: str) -> None:
        """Such as ``READY=1``. A message that finds the socket full is sent again later, on this event loop."""
        try:
            self._send("\n".join(lines).encode())
        except BlockingIOError:
            asyncio.get_running_loop().call_later(_AGAIN, self.send, *lines)

    def _send(self, message: bytes) -> None:
        """BlockingIOError: the socket is full. Any other error is a warning: tasks run without systemd, too."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
                connection.connect(self._address)
                connection.send(message, socket.MSG_DONTWAIT)
        except BlockingIOError:
            raise
        except OSError as error:
            if not self._is_failing:
                _log.warning("[systemd] gets no messages: %s", error)
            self._is_failing = True
        else:
            self._is_failing = False

    @asynccontextmanager
    async def watchdog(self) -> AsyncGenerator[None, None]:
        """Sends ``WATCHDOG=1`` as long as the event loop turns: systemd restarts a service that has stopped to."""
        feed = asyncio.create_task(self._feed()) if self._interval else None
        try:
            yield
        finally:
            if feed is not None:
                feed.cancel()

    async def _feed(self) -> None:
        while True:
            with suppress(BlockingIOError):  # earlier messages are not read yet, and say the same
                self._send(b"WATCHDOG=1")
            await asyncio.sleep(self._interval)
