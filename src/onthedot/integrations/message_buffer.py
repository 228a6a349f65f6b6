"""Messages that wait for one client."""

from __future__ import annotations

import asyncio
from collections import deque

MOST = 100  # messages
MOST_BYTES = 1 << 20  # of all of them; one message may be larger
PATIENCE = 10.0  # seconds for which a client may take nothing while the buffer is full


class ClientStalled(Exception):
    """The client takes no messages."""


class MessageBuffer:
    """A bounded queue with an end. A client that reads fast enough gets any number of messages."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._is_over = False
        self._added = asyncio.Event()
        self._taken = asyncio.Event()

    @property
    def length(self) -> int:
        """How many messages wait."""
        return len(self._messages)

    async def put(self, message: bytes) -> None:
        """Waits until there is space. ClientStalled: the client has taken nothing for a while."""
        while not self._has_space(message):
            self._taken.clear()
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._taken.wait()
            except TimeoutError:
                raise ClientStalled from None
        self._messages.append(message)
        self._bytes += len(message)
        self._added.set()

    def _has_space(self, message: bytes) -> bool:
        if not self._messages:
            return True
        return len(self._messages) < MOST and self._bytes + len(message) <= MOST_BYTES

    async def take(self) -> bytes | None:
        """Waits for the next message; None: the end. A cancelled wait loses nothing."""
        while not self._messages:
            if self._is_over:
                return None
            self._added.clear()
            await self._added.wait()
        message = self._messages.popleft()
        self._bytes -= len(message)
        self._taken.set()
        return message

    def end(self) -> None:
        """Messages in the buffer can still be taken."""
        self._is_over = True
        self._added.set()
