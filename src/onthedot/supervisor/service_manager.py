"""Messages to systemd, for units with ``Type=notify`` and ``WatchdogSec``."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import asynccontextmanager, suppress


class ServiceManager:
    """Sends its messages to a datagram socket; without an address it sends none.

    address: of the socket; one that begins with @ is in Linux' abstract namespace
    interval: seconds between two messages of the watchdog; 0: there is no watchdog
    """

    def __init__(self, address: str = "", interval: float = 0.0) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._interval = interval

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> ServiceManager:
        """Takes the variables of systemd out, so that no process that tasks start sends messages for this one."""
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "0")
        is_ours = environment.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        return cls(address, int(microseconds) / 2_000_000 if address and is_ours else 0.0)

    def send(self, *lines: str) -> None:
        """Such as ``READY=1``."""
        self._send("\n".join(lines).encode(), 0)

    def _send(self, message: bytes, flags: int) -> None:
        if self._address:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
                connection.connect(self._address)
                connection.send(message, flags)

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
                self._send(b"WATCHDOG=1", socket.MSG_DONTWAIT)
            await asyncio.sleep(self._interval)
