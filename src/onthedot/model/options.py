"""What a task may ask for: the options of ``@app.task``, and those of one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypedDict

from onthedot.clock.durations import Duration, to_duration_ms
from onthedot.clock.epoch import to_ms
from onthedot.errors import DeclarationError, meant
from onthedot.model.backoff import Backoff
from onthedot.model.limits import AtMost, Rate

Priority: TypeAlias = int | Literal["low", "normal", "high"]

_PRIORITIES = {"low": 1, "normal": 5, "high": 10}
_HOUR = 3_600_000


class TaskOptions(TypedDict, total=False):
    """Options of a task; also the defaults of an app.

    >>> TaskOptions(max_retries=3, timeout=30)
    {'max_retries': 3, 'timeout': 30}
    """

    executor: str
    """"async", "thread", "process", or a name of ``App(executors=…)``; async functions run on the loop by default."""
    timeout: Duration | None
    max_retries: int
    backoff: float | Sequence[float] | Callable[[int, BaseException], float]
    retry_on: tuple[type[BaseException], ...]
    reject_on: tuple[type[BaseException], ...]
    max_crashes: int
    priority: Priority
    concurrency: int | None
    rate_limit: str | None
    limits: Sequence[Rate | AtMost]
    unique: bool | str | None
    unique_for: Duration | None
    on_conflict: Literal["keep", "replace", "error"]
    expires: Duration | None
    max_pending: int | None
    """How many of it may wait, in all processes together; past it adding raises StoreFull."""
    keep: Duration | None
    keep_failed: Duration | None
    keep_result: Duration | None
    label: str
    tags: Sequence[str]


class AddOptions(TypedDict, total=False):
    """Options of one call: ``send.options(after=1.5, priority="high").delay(…)``."""

    after: Duration
    at: datetime
    priority: Priority
    unique: bool | str | None
    expires: Duration | None
    tags: Sequence[str]
    label: str
    metadata: Mapping[str, Any]
    uuid: str
    connection: Any


@dataclass(frozen=True, slots=True)
class ResolvedOptions:
    """TaskOptions, checked and whole: what the engine works with. Times in milliseconds."""

    executor: str | None
    timeout: int | None
    max_retries: int
    backoff: Backoff
    retry_on: tuple[type[BaseException], ...]
    reject_on: tuple[type[BaseException], ...]
    max_crashes: int
    priority: int
    concurrency: int | None
    rate_limit: str | None
    limits: tuple[Rate | AtMost, ...]
    unique: bool | str | None
    unique_for: int | None
    on_conflict: Literal["keep", "replace", "error"]
    expires: int | None
    max_pending: int | None
    keep: int
    keep_failed: int
    keep_result: int
    label: str
    tags: tuple[str, ...]


def resolve(where: str, *layers: TaskOptions) -> ResolvedOptions:
    """Later layers win. `where` names the task in errors."""
    said: dict[str, Any] = {}
    for layer in layers:
        for unknown in sorted(layer.keys() - TaskOptions.__annotations__.keys()):
            raise DeclarationError(f"{where}: no option {unknown!r}{meant(unknown, TaskOptions.__annotations__)}")
        said.update(layer)
    try:
        return _checked(said)
    except (TypeError, ValueError) as error:
        if isinstance(error, DeclarationError):
            error.args = (f"{where}: {error}",)
            raise
        raise DeclarationError(f"{where}: {error}") from None


def _checked(said: Mapping[str, Any]) -> ResolvedOptions:
    return ResolvedOptions(
        executor=_optional(said, "executor", _word),
        timeout=_optional(said, "timeout", _positive),
        max_retries=_count(said.get("max_retries", 0), "max_retries"),
        backoff=Backoff(said.get("backoff", 5.0)),
        retry_on=_errors(said.get("retry_on", (Exception,)), "retry_on"),
        reject_on=_errors(said.get("reject_on", ()), "reject_on"),
        max_crashes=_count(said.get("max_crashes", 3), "max_crashes", least=1),
        priority=parse_priority(said.get("priority", 5)),
        concurrency=_optional(said, "concurrency", parse_bound),
        rate_limit=said.get("rate_limit"),
        limits=_limits(said.get("limits", ())),
        unique=parse_unique(said.get("unique")),
        unique_for=_optional(said, "unique_for", to_duration_ms),
        on_conflict=parse__one(said.get("on_conflict", "keep"), "on_conflict", ("keep", "replace", "error")),
        expires=_optional(said, "expires", _positive),
        max_pending=_optional(said, "max_pending", parse_bound),
        keep=_keep(said, "keep", 7 * 24 * _HOUR),
        keep_failed=_keep(said, "keep_failed", _keep(said, "keep", 30 * 24 * _HOUR)),
        keep_result=_keep(said, "keep_result", _keep(said, "keep", 24 * _HOUR)),
        label=_text(said.get("label", ""), "label"),
        tags=parse_tags(said.get("tags", ())),
    )


def parse_priority(value: object) -> int:
    """
    >>> parse_priority("high"), parse_priority(3)
    (10, 3)
    """
    if isinstance(value, str) and value in _PRIORITIES:
        return _PRIORITIES[value]
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10:
        return value
    raise ValueError(f"priority must be 1 to 10 (10 first), 'low', 'normal' or 'high', not {value!r}")


def parse_tags(value: Sequence[Any]) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(tag, str) for tag in value):
        raise ValueError(f"tags must be a list of strings, not {value!r}")
    return tuple(value)


def parse_unique(value: object) -> bool | str | None:
    if value is None or isinstance(value, bool | str):
        return value
    raise ValueError(f"unique must be True (all arguments) or a string, not {value!r}")


def check_call(said: AddOptions) -> AddOptions:
    """The options of one call, before they are used: a wrong one is refused where it is written."""
    for unknown in sorted(said.keys() - AddOptions.__annotations__.keys()):
        raise TypeError(f"no option {unknown!r}{meant(unknown, AddOptions.__annotations__)}")
    if "at" in said and "after" in said:
        raise TypeError("at and after: give one of them")
    if "at" in said:
        if not isinstance(said["at"], datetime):
            raise ValueError(f"at must be an aware datetime, not a {type(said['at']).__name__}: {said['at']!r}")
        to_ms(said["at"])
    if "after" in said:
        to_duration_ms(said["after"], "after")
    if "expires" in said and said["expires"] is not None:
        _positive(said["expires"], "expires")
    if "metadata" in said and not isinstance(said["metadata"], Mapping):
        raise TypeError(f"metadata must be a dict, not {said['metadata']!r}")
    parse_priority(said.get("priority", 5))
    parse_unique(said.get("unique"))
    _text(said.get("label", ""), "label")
    parse_tags(said.get("tags", ()))
    return said


def _limits(value: Sequence[Any]) -> tuple[Rate | AtMost, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError(f"limits must be a list of Rate(…) and AtMost(…), not {value!r}")
    return tuple(value)


def _optional(said: Mapping[str, Any], name: str, check: Callable[[Any, str], Any]) -> Any:
    value = said.get(name)
    return None if value is None else check(value, name)


def _keep(said: Mapping[str, Any], name: str, default: int) -> int:
    value = said.get(name)
    return default if value is None else to_duration_ms(value, name)


def _positive(value: Any, what: str) -> int:
    ms = to_duration_ms(value, what)
    if ms <= 0:
        raise ValueError(f"{what} must be more than 0 seconds, not {value!r}")
    return ms


def parse_bound(value: object, what: str, least: int = 1) -> int:
    """How many there may be."""
    return _count(value, what, least)


def _count(value: object, what: str, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{what} must be a whole number from {least}, not {value!r}")
    return value


def _word(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} must be a name, not {value!r}")
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string, not {value!r}")
    return value


def parse__one(value: Any, what: str, allowed: tuple[str, ...]) -> Any:
    if value not in allowed:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
    return value


def _errors(value: type | Sequence[Any], what: str) -> tuple[type[BaseException], ...]:
    if isinstance(value, type):
        value = (value,)
    if not isinstance(value, (tuple, list)) or not all(
        isinstance(e, type) and issubclass(e, BaseException) for e in value
    ):
        raise ValueError(f"{what} must be a tuple of exception classes, not {value!r}")
    return tuple(value)
