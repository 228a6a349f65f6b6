"""Where a task's function runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class Executor(Protocol):
    """Runs one call somewhere and answers on the loop.

    hard: cancelling the await ends the work. Soft ones go on until they return; their slot stays taken.
    """

    hard: bool

    def run(self, call: Callable[..., object], *args: object) -> Awaitable[object]: ...
    def close(self) -> None:
        """No new calls; what idles ends. Never waits."""
        ...


class EncodedResult:
    """What an executor gives back whose results were encoded where they came about."""

    __slots__ = ("data", "problem")

    def __init__(self, data: bytes, problem: str) -> None:
        self.data: bytes = data
        self.problem: str = problem  # why the real one could not be encoded
