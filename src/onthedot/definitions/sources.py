"""Sources as the engine sees them: they decode tasks, call the code and have options and limits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from onthedot.codec.body import Headers
from onthedot.errors import DeclarationError
from onthedot.model.options import ResolvedOptions
from onthedot.stores.contract import Limit

SCRIPT_MODULE = "__mp_main__"  # name of the main script in another process: multiprocessing's, which pickle knows


class Source(Protocol):
    """A decorated function or a consumer, as the engine sees it."""

    name: str
    options: ResolvedOptions
    module: str  # that declares it, for a process that must import it

    @property
    def owner(self) -> object:
        """The app or scheduler that it belongs to: its tasks add tasks of no other."""
        ...

    @property
    def executor(self) -> str: ...
    def max_running(self) -> int | None:
        """How many of its tasks may run in this process at once, read at each claim; None: no limit but the slots."""
        ...

    def decode(self, body: bytes, /) -> tuple[dict[str, Any], Headers]:
        """Returns arguments by name, and headers. Raises Undecodable."""
        ...

    def call(self, arguments: dict[str, Any], /) -> object:
        """Calls the code, in the context of the current task."""
        ...

    def encode(self, value: object, /) -> bytes: ...
    def decode_result(self, data: bytes, /) -> object: ...
    def limits(self, name: str, /) -> list[Limit]:
        """The limits that its code defines, under one of its names."""
        ...


class Sources:
    """The sources of this process, by name. Watchers are called after every change."""

    def __init__(self) -> None:
        self.by_name: dict[str, Source] = {}
        self.get: Callable[[str], Source | None] = self.by_name.get
        self.max_pending: dict[str, int] = {}  # of the sources that have one
        self._watchers: list[Callable[[], None]] = []
        self._builtin: set[str] = set()
        self.own_slots: dict[str, int] = {}  # of sources that do not share the slots of the others
        self.known: frozenset[str] = frozenset()

    def put(self, source: Source, *aliases: str, own_slots: int = 0) -> None:
        """own_slots: how many of its tasks run at once in this process, beside all others; 0: it shares their slots."""
        if own_slots:
            self.own_slots[source.name] = own_slots
        for name in (source.name, *aliases):
            self.by_name[name] = source
            self.max_pending.pop(name, None)
            if source.options.max_pending is not None:
                self.max_pending[name] = source.options.max_pending
        self._changed()

    def put_builtin(self, source: Source, own_slots: int = 0) -> None:
        """A source of this project: every worker runs it, and no list of the user's sources has it."""
        self._builtin.add(source.name)
        self.put(source, own_slots=own_slots)

    def remove(self, name: str) -> None:
        self.by_name.pop(name, None)
        self.max_pending.pop(name, None)
        self._changed()

    def items(self) -> list[tuple[str, Source]]:
        return list(self.by_name.items())

    def of_code(self) -> list[tuple[str, Source]]:
        """Those of the user's code, by name."""
        return [(name, source) for name, source in self.by_name.items() if name not in self._builtin]

    def __iter__(self) -> Iterator[Source]:
        """Those of the user's code."""
        return iter(dict.fromkeys(source for _, source in self.of_code()))

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back after every change. Returns a function that ends this."""
        self._watchers.append(callback)
        return lambda: self._watchers.remove(callback)

    def _changed(self) -> None:
        self.known = frozenset(self.by_name)
        for callback in list(self._watchers):
            callback()


def _called(function: Any) -> Any:
    """The function behind partials and objects that can be called."""
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        return type(function).__call__
    return function


def is_stream_function(function: Any) -> bool:
    """Whether it is an async generator function."""
    return inspect.isasyncgenfunction(_called(function))


def check_function(function: Any, where: str, *, streams: bool = False) -> None:
    """DeclarationError for a function that a worker could not run to its end. streams: it may be an async generator."""
    called = _called(function)
    if inspect.isgeneratorfunction(called):
        raise DeclarationError(
            f"{where} is a generator: calling it runs no line of it; return a list, or write an `async def` that "
            "yields, whose items are streamed"
        )
    if inspect.isasyncgenfunction(called) and not streams:
        raise DeclarationError(f"{where} is an async generator: only a function with @app.task streams; return a list")
    if _is_method(function):
        raise DeclarationError(
            f"{where} is a method: a worker has no object to call it on; declare a function that makes or finds the "
            "object, or a consumer class (BaseTaskConsumer)"
        )


def _is_method(function: Any) -> bool:
    """Whether it is a function in the body of a class that takes the instance or the class."""
    if not inspect.isfunction(function):
        return False  # a bound method has its object
    container = function.__qualname__.rpartition(".")[0]
    first = next(iter(function.__code__.co_varnames[: function.__code__.co_argcount]), "")
    return bool(container) and not container.endswith("<locals>") and first in ("self", "cls")


def module_of(thing: object) -> str:
    """The module that declares it."""
    return module_name(getattr(thing, "__module__", None))


def module_name(name: str | None) -> str:
    """The main script is ``__main__`` in every process."""
    return "__main__" if name in (None, SCRIPT_MODULE) else str(name)
