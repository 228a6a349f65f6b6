"""Executors as the engine sees them: the places where a task's function runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class Executor(Protocol):
    """Runs one call and returns its result on the event loop. Implementations derive from it for its defaults."""

    hard: bool
    """Whether cancelling the await ends the work. Otherwise the call goes on and keeps its slot until it returns."""
    tells_start: bool = False
    """Whether a call may wait in the executor first: it calls `RunState.on_begin` when the timeout starts."""
    encodes: bool = False
    """Whether results come as `EncodedResult`, encoded where the function ran."""
    slots: int | None = None
    """How many calls run at once; None: as many as the app says."""

    def run(self, call: Callable[..., object], *args: object) -> Awaitable[object]:
        """Calls the function with these arguments."""
        ...

    def close(self) -> None:
        """Takes no new calls and ends what idles. Never waits."""
        ...


class EncodedResult:
    """The result of an executor that `encodes`."""

    __slots__ = ("data", "problem")

    def __init__(self, data: bytes, problem: str) -> None:
        self.data: bytes = data
        self.problem: str = problem  # why the real result could not be encoded
