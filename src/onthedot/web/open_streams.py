"""The open streams of a process, counted by user."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from onthedot.web.errors import ApiError

MAX_STREAMS = 100  # per process
MAX_STREAMS_PER_USER = 12


class Stream(Protocol):
    """An answer that goes on until it is ended."""

    def end(self) -> None: ...


class OpenStreams:
    """The streams of a process, counted by user; a server that stops ends them."""

    def __init__(self) -> None:
        self._streams: dict[Stream, str] = {}

    def add(self, stream: Stream, user: str) -> None:
        count = Counter(self._streams.values())
        if count.total() >= MAX_STREAMS or count[user] >= MAX_STREAMS_PER_USER:
            raise ApiError("too_many_streams", "too many open streams; close some tabs", retry_after=5)
        self._streams[stream] = user

    def remove(self, stream: Stream) -> None:
        self._streams.pop(stream, None)

    def __len__(self) -> int:
        return len(self._streams)

    def end_all(self) -> None:
        for stream in list(self._streams):
            stream.end()
