"""Server-sent events: their encoding, and how long a response of them lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from onthedot.web import server_exit

COMMENT_EVERY = 15.0  # seconds without an event: proxies close a connection on which nothing comes
LONGEST = 1800.0  # seconds for which a stream lives; then the browser continues with a new one
LONGEST_UNWATCHED = 30.0  # the same, where the server does not show that it stops, and so waits for its streams

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # nginx would gather events
FIRST = b"retry: 1000\n\n"  # ms until a browser connects again
COMMENT = b":\n\n"


def encode_event(kind: str, data: object, cursor: str | None = None) -> bytes:
    """One event. cursor: None: it cannot be replayed, and leaves the id of the event before.

    >>> encode_event("item", "a", "7-1")
    b'id: 7-1\\nevent: item\\ndata: "a"\\n\\n'
    """
    named = "" if cursor is None else f"id: {cursor}\n"
    return f"{named}event: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


class StreamLifetime:
    """Ends one stream after its longest time, and when the server stops."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._timer: asyncio.TimerHandle | None = None

    def start(self, *, is_ended_by_server: bool = False) -> None:
        """is_ended_by_server: the server, when it stops, ends the stream in another way."""
        is_watched = is_ended_by_server or server_exit.is_known()
        lifetime = LONGEST if is_watched else LONGEST_UNWATCHED
        self._timer = asyncio.get_running_loop().call_later(lifetime, self._end)
        server_exit.exit_watch().add(self, self._end)

    def stop(self) -> None:
        server_exit.exit_watch().remove(self)
        if self._timer is not None:
            self._timer.cancel()
