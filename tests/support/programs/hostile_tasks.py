"""An app whose tasks raise hostile errors: in the event loop, in a thread and in a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onthedot import App, Retry

app = App("hostile", store="memory://", concurrency=2, threads=2, processes=2, stop_timeout=0)


class MissingField(Exception):
    """An error of an SDK that maps the fields of a reply to attributes."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


class SilentStr(Exception):
    def __str__(self) -> str:
        raise OSError("no text")


class StopInStr(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")


class SilentRepr(Exception):
    def __repr__(self) -> str:
        raise OSError("no text")

    __str__ = __repr__


class NoArgs(Exception):
    @property
    def args(self) -> Any:  # type: ignore[override]
        raise OSError("no arguments")


class NoClass(Exception):
    @property
    def __class__(self) -> Any:
        raise OSError("no class")


class FalseClass(Exception):
    @property
    def __class__(self) -> Any:
        return Retry


class NoTraceback(Exception):
    @property
    def __traceback__(self) -> Any:
        raise OSError("no traceback")


class OddModule(Exception):
    __module__ = None  # type: ignore[assignment]


class OddText(str):
    __slots__ = ()

    def encode(self, *_: object) -> Any:
        raise OSError("no bytes")

    def __len__(self) -> int:
        raise OSError("no length")


class OddStr(Exception):
    def __str__(self) -> str:
        return OddText("odd")


class Nameless(type):
    def __getattribute__(cls, name: str) -> Any:
        if name == "__qualname__":
            raise OSError("no name")
        return super().__getattribute__(name)


class NoName(Exception, metaclass=Nameless):
    pass


class OwnRetry(Retry):
    """A control of the user's: it retries, but there is no retry left."""


class SilentStop(StopIteration):
    def __repr__(self) -> str:
        raise OSError("no text")

    __str__ = __repr__


class Lying(Exception):
    """Its attributes look like those of our errors."""

    outcome = "requeued"
    failure = "none"
    error_type = 7


def cycle() -> BaseException:
    first = ValueError("first")
    second = ValueError("second")
    first.__cause__ = second
    second.__cause__ = first
    return first


def deep_group() -> BaseException:
    error: Exception = ValueError("innermost")
    for _ in range(5_000):
        error = ExceptionGroup("deep", [error])
    return error


ERRORS: dict[str, Callable[[], BaseException]] = {
    error_class.__name__: error_class
    for error_class in (
        MissingField,
        SilentStr,
        StopInStr,
        SilentRepr,
        NoArgs,
        NoClass,
        FalseClass,
        NoTraceback,
        OddModule,
        OddStr,
        NoName,
        OwnRetry,
        SilentStop,
        Lying,
    )
} | {"cycle": cycle, "deep_group": deep_group}


@app.task(max_retries=0)
async def on_loop(error: str) -> None:
    error_class = ERRORS[error]
    raise error_class()


@app.task(executor="thread", max_retries=0)
def in_thread(error: str) -> None:
    error_class = ERRORS[error]
    raise error_class()


@app.task(executor="process", max_retries=0)
def in_process(error: str) -> None:
    error_class = ERRORS[error]
    raise error_class()


@app.task
async def good_on_loop() -> str:
    return "good"


@app.task(executor="thread")
def good_in_thread() -> str:
    return "good"


@app.task(executor="process")
def good_in_process() -> str:
    return "good"
