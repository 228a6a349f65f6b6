"""The options of ``@app.task``, and those of one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypedDict

from onthedot.clock.durations import DAY, WEEK, Duration, to_duration_ms
from onthedot.clock.epoch import to_ms
from onthedot.errors import DeclarationError, Retry, suggestion
from onthedot.model.backoff import Backoff
from onthedot.model.familiar_names import ADVICE, OPTIONS
from onthedot.model.limits import AtMost, Rate
from onthedot.model.stored_keys import stored_key
from onthedot.model.task import check_uuid
from onthedot.model.value_errors import SettingError

Priority: TypeAlias = int | Literal["low", "normal", "high"]

_PARAMETERS = ("name", "schedule", "aliases")  # of @app.task, beside its options
_PRIORITIES = {"low": 1, "normal": 5, "high": 10}


class TaskOptions(TypedDict, total=False):
    """Options of a task, in ``@app.task(…)``; also ``App(defaults=…)``. Durations are seconds or a timedelta.

    >>> TaskOptions(max_retries=3, timeout=30)
    {'max_retries': 3, 'timeout': 30}
    """

    executor: str
    """"async", "thread", "process", or a name of ``App(executors=…)``.

    By default async functions run on the event loop, and sync functions in threads.
    """
    timeout: Duration | None
    """How long a run may take; then it fails with `TaskTimeout`. A thread is not stopped, only left."""
    max_retries: int
    """How often a failed run is repeated; 0 by default. A task that raises `Retry` gets 3 by default."""
    backoff: float | Sequence[float] | Callable[[int, BaseException], float]
    """The delay before a retry, 5 by default.

    A number of seconds doubles with each retry, up to ten minutes, ±10 %. A list gives each delay; the last repeats.
    A callable gets the number of the retry, from 1, and the error, and returns seconds.
    """
    retry_on: tuple[type[BaseException], ...]
    """The errors that are retried; by default every `Exception`. A timeout is always retried."""
    reject_on: tuple[type[BaseException], ...]
    """The errors that are never retried, although `retry_on` has them or a base of them."""
    max_crashes: int
    """How often the worker may die during the task before it fails; 3 by default."""
    priority: Priority
    """1 to 10, 10 first; or "low" (1), "normal" (5, the default), "high" (10). Tasks that wait long overtake."""
    concurrency: int | None
    """How many of the task run at once, in all processes together."""
    rate_limit: str | None
    """How many of the task start in a time, in all processes together: "10/s", "100/m", "5/2s", "1000/h", "3/d"."""
    limits: Sequence[Rate | AtMost]
    """Limits per value of an argument, or shared with other tasks: ``[Rate("10/s", by="customer"), AtMost(2, …)]``."""
    unique: bool | str | None
    """At most one pending or running task per key: True (all arguments), or a template such as "{customer}:{day}"."""
    unique_for: Duration | None
    """How long the unique key stays taken, counted from the add; by default until the task has ended."""
    on_conflict: Literal["keep", "replace", "error"]
    """If the unique key is taken: "keep" the first task (the default); "replace" the arguments and time of one that has
    not started; "error" raises `DuplicateTask`.
    """
    expires: Duration | None
    """A task that has not started this long after it was due ends as cancelled."""
    max_pending: int | None
    """How many may be pending, in all processes together; above it an add raises `StoreFull`."""
    keep: Duration | None
    """How long a succeeded or cancelled task is kept; 7 days by default. Also the default of the two below."""
    keep_failed: Duration | None
    """How long a failed task is kept; 30 days by default."""
    keep_result: Duration | None
    """How long the result is kept; 24 hours by default."""
    label: str
    """A short text for people, shown with the task; a template such as "report {day} for {customer}"."""
    tags: Sequence[str]
    """Words to find and filter tasks by."""


class AddOptions(TypedDict, total=False):
    """Options of one call: ``send.options(after=1.5, priority="high").delay(…)``."""

    after: Duration
    """The task is due this many seconds, or a timedelta, after it is added. Not together with `at`."""
    at: datetime
    """When the task is due, an aware datetime. Not together with `after`."""
    priority: Priority
    """1 to 10, 10 first; or "low", "normal", "high"."""
    unique: bool | str | None
    """At most one pending or running task per key: True (all arguments), or the key itself."""
    expires: Duration | None
    """A task that has not started this long after it was due ends as cancelled."""
    tags: Sequence[str]
    """Words to find and filter tasks by, instead of those of the definition."""
    label: str
    """A short text for people, instead of that of the definition."""
    metadata: Mapping[str, Any]
    """Data that travels with the task: ``current_task().metadata``."""
    uuid: str
    """The id of the task; adding the same id again adds nothing."""
    connection: Any
    """Your database connection or session: the task is added in its transaction, with your commit."""


@dataclass(frozen=True, slots=True)
class ResolvedOptions:
    """`TaskOptions`, checked and with all defaults, for the engine. Durations are in milliseconds."""

    executor: str | None
    timeout: int | None
    max_retries: int
    max_raised_retries: int  # how often a raised `Retry` is obeyed
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

    def retries_for(self, error: BaseException) -> int:
        """How often this error is retried at most."""
        return self.max_raised_retries if issubclass(type(error), Retry) else self.max_retries


def resolve(where: str, *layers: TaskOptions) -> ResolvedOptions:
    """The options of several layers; later ones win. `where` names the task in errors."""
    options: dict[str, Any] = {}
    for layer in layers:
        for unknown in sorted(layer.keys() - TaskOptions.__annotations__.keys()):
            raise DeclarationError(f"{where}: no option {unknown!r}{_advice(unknown, TaskOptions.__annotations__)}")
        options.update(layer)
    try:
        return _checked(options)
    except (TypeError, ValueError) as error:
        if isinstance(error, DeclarationError):
            error.args = (f"{where}: {error}",)
            raise
        raise DeclarationError(f"{where}: {error}") from None


def _checked(options: Mapping[str, Any]) -> ResolvedOptions:
    return ResolvedOptions(
        executor=_optional(options, "executor", _word),
        timeout=_optional(options, "timeout", _positive),
        max_retries=_count(options.get("max_retries", 0), "max_retries"),
        max_raised_retries=_count(options.get("max_retries", 3), "max_retries"),
        backoff=Backoff(options.get("backoff", 5.0)),
        retry_on=_errors(options.get("retry_on", (Exception,)), "retry_on"),
        reject_on=_errors(options.get("reject_on", ()), "reject_on"),
        max_crashes=_count(options.get("max_crashes", 3), "max_crashes", least=1),
        priority=parse_priority(options.get("priority", 5)),
        concurrency=_optional(options, "concurrency", parse_bound),
        rate_limit=options.get("rate_limit"),
        limits=_limits(options.get("limits", ())),
        unique=parse_unique(options.get("unique")),
        unique_for=_optional(options, "unique_for", to_duration_ms),
        on_conflict=_parse_choice(options.get("on_conflict", "keep"), "on_conflict", ("keep", "replace", "error")),
        expires=_optional(options, "expires", _positive),
        max_pending=_optional(options, "max_pending", parse_bound),
        keep=_keep(options, "keep", WEEK),
        keep_failed=_keep(options, "keep_failed", _keep(options, "keep", 30 * DAY)),
        keep_result=_keep(options, "keep_result", _keep(options, "keep", DAY)),
        label=_text(options.get("label", ""), "label"),
        tags=parse_tags(options.get("tags", ())),
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
    return tuple([stored_key(tag, "tags") for tag in value])


def parse_unique(value: object) -> bool | str | None:
    if value is None or isinstance(value, bool | str):
        return value
    raise ValueError(f"unique must be True (all arguments) or a string, not {value!r}")


def check_call(options: AddOptions) -> AddOptions:
    """The options of one call, checked where they are written."""
    for unknown in sorted(options.keys() - AddOptions.__annotations__.keys()):
        raise TypeError(f"no option {unknown!r}{_advice(unknown, AddOptions.__annotations__)}")
    if "at" in options and "after" in options:
        raise TypeError("at and after: give one of them")
    if "at" in options:
        if not isinstance(options["at"], datetime):
            raise ValueError(f"at must be an aware datetime, not a {type(options['at']).__name__}: {options['at']!r}")
        to_ms(options["at"])
    if "after" in options:
        to_duration_ms(options["after"], "after")
    if "expires" in options and options["expires"] is not None:
        _positive(options["expires"], "expires")
    if "metadata" in options and not isinstance(options["metadata"], Mapping):
        raise TypeError(f"metadata must be a dict, not {options['metadata']!r}")
    if "uuid" in options:
        check_uuid(options["uuid"])
    parse_priority(options.get("priority", 5))
    parse_unique(options.get("unique"))
    _text(options.get("label", ""), "label")
    parse_tags(options.get("tags", ()))
    return options


def _advice(unknown: str, known: Mapping[str, object]) -> str:
    """The end of a message about an unknown option: ours that does the same, or the nearest name."""
    if unknown in ADVICE:
        return f"; {ADVICE[unknown]}"
    ours = OPTIONS.get(unknown, unknown)
    if ours in known or (ours in _PARAMETERS and known is TaskOptions.__annotations__):
        return f"; it is {ours}=… here"
    if ours in AddOptions.__annotations__:
        return f"; it is an option of one call: .options({ours}=…).delay(…)"
    if ours in TaskOptions.__annotations__ or ours in _PARAMETERS:
        return f"{suggestion('', known)}; {ours}=… is an option of the task: @app.task({ours}=…)"
    return suggestion(unknown, known)


def _limits(value: Sequence[Any]) -> tuple[Rate | AtMost, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError(f"limits must be a list of Rate(…) and AtMost(…), not {value!r}")
    return tuple(value)


def _optional(options: Mapping[str, Any], name: str, check: Callable[[Any, str], Any]) -> Any:
    if options.get(name) is None:
        return None
    return check(options[name], name)


def _keep(options: Mapping[str, Any], name: str, default: int) -> int:
    if options.get(name) is None:
        return default
    return to_duration_ms(options[name], name)


def _positive(value: Any, what: str) -> int:
    ms = to_duration_ms(value, what)
    if ms <= 0:
        raise ValueError(f"{what} must be more than 0 seconds, not {value!r}")
    return ms


def parse_bound(value: object, what: str, least: int = 1) -> int:
    """A whole number that bounds something."""
    return _count(value, what, least)


def _count(value: object, what: str, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise SettingError(f"{what} must be a whole number from {least}, not {value!r}")
    return value


def _word(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} must be a name, not {value!r}")
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string, not {value!r}")
    return value


def _parse_choice(value: Any, what: str, allowed: tuple[str, ...]) -> Any:
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
