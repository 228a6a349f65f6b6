"""On the event loop itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import CoroutineType
from typing import Any


class Inline:
    hard = True

    def run(self, call: Callable[..., object], *args: object) -> Awaitable[object]:
        """The coroutine itself is the answer: nothing is wrapped around it."""
        value = call(*args)
        if type(value) is CoroutineType or isinstance(value, Awaitable):
            return value
        return _Ready(value)

    def close(self) -> None:
        pass  # nothing was opened


class _Ready:
    """What a sync function has returned already."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, object]:
        return self._value
        yield  # what makes it a generator
