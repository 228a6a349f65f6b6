"""The executor of async functions: the event loop itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import CoroutineType
from typing import TYPE_CHECKING, Any, cast

from onthedot.executors.contract import Executor

_COROUTINE: type[CoroutineType[Any, Any, object]] = CoroutineType  # so that its value is an object, not unknown


class EventLoopExecutor(Executor):
    """Runs functions on the event loop."""

    hard = True

    def run(self, call: Callable[..., object], *args: object) -> Awaitable[object]:
        """The coroutine of the call, with nothing wrapped around it."""
        value = call(*args)
        if type(value) is _COROUTINE:
            return value
        if isinstance(value, Awaitable):
            return cast("Awaitable[object]", value)
        return _Ready(value)

    def close(self) -> None:
        """There is nothing to close."""


class _Ready:
    """An awaitable of the value that a sync function has returned."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, object]:
        if TYPE_CHECKING:  # never at run time, and reachable for a type checker
            yield  # what makes it a generator
        return self._value
