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
