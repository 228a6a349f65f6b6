"""A declared task: what its decorator or class says, checked once, and how a call of it becomes a NewTask."""

from __future__ import annotations

import hashlib
import inspect
import string
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from onthedot.clock.durations import to_duration_ms, to_seconds
from onthedot.clock.epoch import to_ms
from onthedot.codec.body import NO_HEADERS, Caps, Headers
from onthedot.codec.functions import FunctionCodec
from onthedot.codec.untyped import decode_untyped_result, encode_untyped
from onthedot.errors import ArgumentError, DeclarationError, DuplicateTask
from onthedot.model.limits import LimitDefinitions
from onthedot.model.options import AddOptions, ResolvedOptions, parse_priority, parse_tags
from onthedot.model.task import check_uuid
from onthedot.model.uuid7 import new_uuid
from onthedot.runtime.user_code import module_of
from onthedot.stores.contract import Added, Limit, NewTask, Policy

AGING = 60_000  # ms that a level of priority is worth

_NO_OPTIONS: AddOptions = {}
_CAPS = Caps()


class TaskOwner(Protocol):
    """The app, as far as its tasks need it."""

    client: str
    sync_executor: str


class FunctionDefinition:
    """A function as a source. The engine reads, calls and encodes through it."""

    def __init__(
        self, home: TaskOwner, function: Callable[..., object], name: str, options: ResolvedOptions, caps: Caps
    ) -> None:
        self.name = name
        self.options = options
        self.function = function
        self.module: str = module_of(function)
        self.codec: FunctionCodec = FunctionCodec(function, name, caps)
        self.decode: Callable[[bytes], tuple[dict[str, Any], Headers]] = self.codec.decode
        self.call: Callable[[dict[str, Any]], object] = self.codec.call
        self.encode: Callable[[object], bytes] = self.codec.encode_result
        self.is_async: bool = inspect.iscoroutinefunction(function)
        self._home = home
        self._caps = caps
        self._defaults = {
            parameter.name: parameter.default
            for parameter in inspect.signature(function).parameters.values()
            if parameter.default is not parameter.empty
        }
        self._limits = LimitDefinitions(
            name, options.concurrency, options.rate_limit, options.limits, self.codec.parameters, self._defaults
        )
        self._policies: dict[object, Policy] = {}
        # What a plain call needs no look at: no key, no lane, no label.
        laned = any(limit.name != name for limit in self._limits.records())
        self._plain = not (options.unique or options.label or laned)
        self._check()

    def _check(self) -> None:
        if self.is_async and self.options.executor == "thread":
            raise DeclarationError(f"task {self.name!r}: an async function runs on the event loop, not in a thread")
        if not self.is_async and self.options.executor == "async":
            raise DeclarationError(
                f"task {self.name!r}: executor='async' takes an `async def`; a plain function would hold up the event "
                "loop and all that runs on it: leave executor out, and it runs in a thread"
            )
        for what, template in (("unique", self.options.unique), ("label", self.options.label)):
            if isinstance(template, str):
                _check_template(self.name, what, template, self.codec.parameters)

    # -- for the engine

    @property
    def executor(self) -> str:
        return self.options.executor or ("async" if self.is_async else self._home.sync_executor)

    def max_running(self) -> int | None:
        return None

    def limits(self, name: str) -> list[Limit]:
        return self._limits.to_limits(name)

    # -- for those who add

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return self.codec.bind(args, kwargs)

    def decode_result(self, data: bytes) -> Any:
        return self.codec.decode_result(data)

    def new_task(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], said: AddOptions = _NO_OPTIONS) -> NewTask:
        """Binds, checks and encodes, before anything is stored."""
        if self._plain and not said:
            return NewTask(new_uuid(), self.name, self.codec.encode(args, kwargs), policy=self._policy(said))
        given = {**self._defaults, **self.codec.bind(args, kwargs)}
        body = self.codec.encode(args, kwargs, self._headers(given, said))
        lane, cost = self._limits.lane(given)
        at, after = due_time(said)
        uuid = check_uuid(said["uuid"]) if "uuid" in said else new_uuid()
        unique = unique_key(self.name, self.options, given, said, self._caps)
        return NewTask(uuid, self.name, body, at, after, lane, unique, self._policy(said, cost))

    def _headers(self, given: Mapping[str, Any], said: AddOptions) -> Headers:
        label = said["label"] if "label" in said else render_template(self.name, "label", self.options.label, given)
        return build_headers(said, label)

    def _policy(self, said: AddOptions, cost: float = 1) -> Policy:
        return policy_of(self._policies, self.options, said, self._home.client, cost)


class Unplaced(NewTask, frozen=True, gc=False):
    """Made without its code: whoever adds it asks the store which lane its source's limits put it on."""


class RemoteDefinition:
    """A task without a signature: whoever runs it checks its arguments. Its code is elsewhere, or a consumer's here."""

    def __init__(
        self, home: TaskOwner, name: str, options: ResolvedOptions, limits: LimitDefinitions | None = None
    ) -> None:
        self.name = name
        self.options = options
        self._limits = limits  # None: its code is elsewhere
        self._home = home
        self._policies: dict[object, Policy] = {}

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if args:
            raise ArgumentError(f"{self.name}: its signature is not known here, so pass its arguments by name")
        return dict(kwargs)

    def decode_result(self, data: bytes) -> Any:
        return decode_untyped_result(data)

    def new_task(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], said: AddOptions = _NO_OPTIONS) -> NewTask:
        given, (at, after) = self.bind(args, kwargs), due_time(said)
        uuid = check_uuid(said["uuid"]) if "uuid" in said else new_uuid()
        if self._limits is None:
            if (key := said.get("unique")) is True:
                raise ArgumentError(
                    f"{self.name}.options(unique=True): which arguments have defaults is not known without its code, "
                    "so two equal calls could differ; give it a key, as in unique='2026-11-16'"
                )
            body = encode_untyped(given, build_headers(said, said.get("label", "")), name=self.name)
            return Unplaced(
                uuid, self.name, body, at, after, None, None if key is False else key, self._policy(said, 1)
            )
        lane, cost = self._limits.lane(given)
        label = said["label"] if "label" in said else render_template(self.name, "label", self.options.label, given)
        body = encode_untyped(given, build_headers(said, label), name=self.name)
        unique = unique_key(self.name, self.options, given, said)
        return NewTask(uuid, self.name, body, at, after, lane, unique, self._policy(said, cost))

    def _policy(self, said: AddOptions, cost: float) -> Policy:
        return policy_of(self._policies, self.options, said, self._home.client, cost)


def unique_key(
    name: str, options: ResolvedOptions, given: Mapping[str, Any], said: AddOptions = _NO_OPTIONS, caps: Caps = _CAPS
) -> str | None:
    """As the call says it, else all arguments, or what the declaration's template makes of them."""
    unique = said.get("unique", options.unique)
    if unique is None or unique is False:
        return None
    if unique is True:
        return hashlib.sha256(encode_untyped(given, NO_HEADERS, caps, name)).hexdigest()
    return unique if "unique" in said else render_template(name, "unique", unique, given)


def render_template(name: str, what: str, template: str, given: Mapping[str, Any]) -> str:
    """
    >>> filled("report", "label", "report {day} for {customer}", {"day": "monday", "customer": "ann"})
    'report monday for ann'
    """
    try:
        return template.format_map(given) if template else ""
    except KeyError as error:
        raise ArgumentError(f"{name}: {what}={template!r} needs {error}, and this call has no such argument") from None
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise ArgumentError(f"{name}: {what}={template!r} does not fit the arguments of this call: {error}") from None


def check_conflict(name: str, options: ResolvedOptions, new: NewTask, added: Added) -> bool:
    """Was it fresh? on_conflict="error" takes no other answer, but the same uuid again is no conflict."""
    if added.uuid != new.uuid and options.on_conflict == "error":
        raise DuplicateTask(f"{name}: a task with unique key {new.unique!r} is alive already: {added.uuid}")
    return added.fresh


def build_headers(said: AddOptions, label: str) -> Headers:
    at, metadata = said.get("at"), said.get("metadata")
    if not (label or at or metadata):
        return NO_HEADERS
    iso = None if at is None else at.isoformat(timespec="microseconds")
    return Headers(at=iso, scheduled_for=None, label=label, metadata=None if metadata is None else dict(metadata))


def due_time(said: AddOptions) -> tuple[int | None, float]:
    """(at, after) in milliseconds."""
    if not said:
        return None, 0
    if "at" in said and "after" in said:
        raise ArgumentError("options(at=…, after=…): give one of them")
    if "at" in said:
        return to_ms(said["at"]), 0
    return None, round(to_seconds(said.get("after", 0), "options(after)") * 1000, 3)


def policy_of(
    cache: dict[object, Policy], options: ResolvedOptions, said: AddOptions, client: str, cost: float
) -> Policy:
    """One object for all tasks that are treated alike: a million pending ones share it."""
    if not said:
        key: object = (client, cost)
    else:
        key = (
            client,
            cost,
            str(said.get("priority")),
            said.get("expires"),
            "expires" in said,
            tuple(said.get("tags", ())),
        )
    policy = cache.get(key)
    if policy is None:
        priority = parse_priority(said["priority"]) if "priority" in said else options.priority
        expires = said.get("expires")  # given as None: this one does not expire, whatever the declaration says
        if expires is not None:
            expires = to_duration_ms(expires, "options(expires)")
        policy = Policy(
            priority=priority,
            boost=priority * AGING,
            cost=cost,
            on_conflict="replace" if options.on_conflict == "replace" else "keep",
            unique_for=options.unique_for,
            expires=expires if "expires" in said else options.expires,
            max_crashes=options.max_crashes,
            tags=parse_tags(said["tags"]) if "tags" in said else options.tags,
            reply_to=client,
        )
        if len(cache) >= 1000:  # tags and costs may be anything
            cache.clear()
        cache[key] = policy
    return policy


def _check_template(name: str, what: str, template: str, parameters: tuple[str, ...]) -> None:
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise DeclarationError(f"task {name!r}: {what}={template!r} is not a template: {error}") from None
    for field in fields:
        first = field.partition(".")[0].partition("[")[0]
        if first not in parameters:
            raise DeclarationError(f"task {name!r}: {what}={template!r} names {first!r}, which is no parameter of it")
