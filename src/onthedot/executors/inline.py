"""On the event loop itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import CoroutineType
from typing import TYPE_CHECKING, Any, cast

from onthedot.errors import DeclarationError

_COROUTINE: type[CoroutineType[Any, Any, object]] = CoroutineType  # so that its value is an object, not unknown


class Inline:
    hard = True

    def run(self, call: Callable[..., object], *args: object) -> Awaitable[object]:
        """The coroutine itself is the answer: nothing is wrapped around it."""
        value = call(*args)
        if type(value) is _COROUTINE:
            return value
        if isinstance(value, Awaitable):
            return cast("Awaitable[object]", value)
        return _Ready(value)

    def close(self) -> None:
        pass  # nothing was opened


class NotBuilt:
    """Stands for an executor that this version does not have: its tasks fail and say so, the others go on."""

    hard = True

    def __init__(self, what: str) -> None:
        self._what = what

    def run(self, call: Callable[..., object], *args: object) -> Awaitable[object]:
        raise DeclarationError(f"{self._what} is not built yet in this version: {call} was not called with {args}")

    def close(self) -> None:
        pass  # nothing was opened


class _Ready:
    """What a sync function has returned already."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, object]:
        if TYPE_CHECKING:  # never at run time, and reachable for a type checker
            yield  # what makes it a generator
        return self._value
