"""What the engine knows of a source: how to read its tasks, call its code, and what its options say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from onthedot.codec.body import Headers
from onthedot.model.options import ResolvedOptions
from onthedot.stores.contract import Limit

SCRIPT_MODULE = "__mp_main__"  # name of the main script in another process: multiprocessing's, which pickle knows


class Source(Protocol):
    """A decorated function or a consumer, as the engine sees it."""

    name: str
    options: ResolvedOptions
    module: str  # where its code is, for a process that must import it

    @property
    def executor(self) -> str: ...
    def max_running(self) -> int | None:
        """How many of it may run in this process at once, read at each claim; None: only the slots limit it."""
        ...

    def decode(self, body: bytes, /) -> tuple[dict[str, Any], Headers]:
        """Arguments by name. Raises Undecodable."""
        ...

    def call(self, arguments: dict[str, Any], /) -> object:
        """Calls the code, as the current task."""
        ...

    def encode(self, value: object, /) -> bytes: ...
    def decode_result(self, data: bytes, /) -> object: ...
    def limits(self, name: str, /) -> list[Limit]:
        """What its code says, under one of its names."""
        ...


class Sources:
    """The sources of this process, by name. Whoever watches is told when one comes or goes."""

    def __init__(self) -> None:
        self.by_name: dict[str, Source] = {}
        self._watchers: list[Callable[[], None]] = []
        self.known: frozenset[str] = frozenset()

    def put(self, source: Source, *aliases: str) -> None:
        for name in (source.name, *aliases):
            self.by_name[name] = source
        self._changed()

    def remove(self, name: str) -> None:
        self.by_name.pop(name, None)
        self._changed()

    def get(self, name: str) -> Source | None:
        return self.by_name.get(name)

    def items(self) -> list[tuple[str, Source]]:
        return list(self.by_name.items())

    def __iter__(self) -> Iterator[Source]:
        return iter(dict.fromkeys(self.by_name.values()))

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Answers with the way to stop watching."""
        self._watchers.append(callback)
        return lambda: self._watchers.remove(callback)

    def _changed(self) -> None:
        self.known = frozenset(self.by_name)
        for callback in list(self._watchers):
            callback()


def module_of(thing: object) -> str:
    """The module that declares it."""
    return module_name(getattr(thing, "__module__", None))


def module_name(name: str | None) -> str:
    """The main script is ``__main__`` in every process."""
    return "__main__" if name in (None, SCRIPT_MODULE) else str(name)
