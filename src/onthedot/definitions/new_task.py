"""The one factory of new tasks: functions, consumers, remote definitions and schedules make theirs here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from onthedot.clock.durations import to_duration_ms, to_seconds
from onthedot.clock.epoch import to_ms
from onthedot.codec.body import NO_HEADERS, Caps, Headers
from onthedot.codec.untyped import encode_untyped
from onthedot.errors import ArgumentError, DuplicateTask
from onthedot.model.executor_names import THREAD
from onthedot.model.limits import LimitDefinitions
from onthedot.model.options import AddOptions, ResolvedOptions, parse_priority, parse_tags
from onthedot.model.stored_keys import stored_key
from onthedot.model.task import Task, check_uuid
from onthedot.model.uuid7 import new_uuid
from onthedot.stores.contract import Added, Links, NewTask, Policy

AGING = 60_000  # ms that a level of priority is worth
_MAX_POLICIES = 1000  # in a cache: tags and costs may be anything
NO_OPTIONS: AddOptions = {}


@dataclass(eq=False)
class TaskOwner:
    """The app or scheduler that tasks belong to, as far as definitions need it."""

    new_uuid: Callable[[], str] = new_uuid
    sync_executor: str = THREAD  # of functions that are not async and name no executor
    max_flow: int = 10_000  # tasks of one flow

    def __post_init__(self) -> None:
        self.renew_client()

    def renew_client(self) -> None:
        """Another name of this process, which receives the hints about the ends of tasks added here."""
        self.client: str = self.new_uuid()


@dataclass(eq=False, slots=True)
class TaskTemplate:
    """The fields that all new tasks of a source have in common.

    limits: None: without the code; `LaneRouter` finds the lane in the store
    """

    owner: TaskOwner
    source: str
    options: ResolvedOptions
    limits: LimitDefinitions | None
    caps: Caps = field(default_factory=Caps)
    policies: dict[object, Policy] = field(default_factory=dict[object, Policy])


def new_task(
    template: TaskTemplate,
    arguments: Mapping[str, Any],
    call_options: AddOptions = NO_OPTIONS,
    encode: Callable[[Headers], bytes] | None = None,
    now: float = 0,
    flow: Headers = NO_HEADERS,
    uuid: str | None = None,
    links: Links | None = None,
) -> NewTask:
    """Makes a task of arguments that are bound already.

    arguments: by name, with defaults
    encode: writes the arguments with these headers; None: without a signature
    now: by the clock of the caller; an `at` of the current millisecond that has passed is due at once
    flow: inputs and results of a member of a flow
    uuid, links: of a member of a flow
    """
    unique = unique_key(template, arguments, call_options)
    label = call_options.get("label")
    if label is None:
        label = render_template(template.source, "label", template.options.label, arguments)
    headers = build_headers(call_options, label)
    if flow is not NO_HEADERS:
        headers = replace(headers, inputs=flow.inputs, results=flow.results)
    body = encode_untyped(arguments, headers, name=template.source) if encode is None else encode(headers)
    lane, cost = (None, 1.0) if template.limits is None else template.limits.lane(arguments)
    at, after = due_time(call_options, now)
    if uuid is None:
        uuid = check_uuid(call_options["uuid"]) if "uuid" in call_options else template.owner.new_uuid()
    policy = task_policy(template, call_options, cost)
    return NewTask(uuid, template.source, body, at, after, lane, unique, policy, links)


def new_task_from(template: TaskTemplate, task: Task, now: float = 0, *, timed: bool = True) -> NewTask:
    """Makes a new task of a Task, such as ``produce()`` returns.

    timed: it is due at ``schedule_at``, kept to the microsecond; False: a schedule decides when
    """
    task = Task(task.source, task.args, task.schedule_at, task.uuid)  # checked again: its fields can be set
    options: AddOptions = {"uuid": task.uuid}
    if timed:
        options["at"] = task.schedule_at
    return new_task(template, task.args, options, now=now)


def unique_key(template: TaskTemplate, arguments: Mapping[str, Any], call_options: AddOptions) -> str | None:
    """The key of the call; else a digest of all arguments, or what the definition's template makes of them."""
    unique = call_options.get("unique", template.options.unique)
    if unique is None or unique is False:
        return None
    if unique is True:
        return hashlib.sha256(encode_untyped(arguments, NO_HEADERS, template.caps, template.source)).hexdigest()
    if "unique" not in call_options:
        unique = render_template(template.source, "unique", unique, arguments)
    return stored_key(unique, "unique", template.source)


def render_template(name: str, option: str, template: str, arguments: Mapping[str, Any]) -> str:
    """
    >>> render_template("report", "label", "report {day} for {customer}", {"day": "monday", "customer": "ann"})
    'report monday for ann'
    """
    if not template:
        return ""
    try:
        return template.format_map(arguments)
    except KeyError as error:
        needed = f"needs {error}, and this call has no such argument"
        raise ArgumentError(f"{name}: {option}={template!r} {needed}") from None
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise ArgumentError(f"{name}: {option}={template!r} does not fit the arguments of this call: {error}") from None


def check_conflict(name: str, options: ResolvedOptions, new: NewTask, added: Added) -> bool:
    """Returns whether the task is new. With on_conflict="error" another task of its key is a DuplicateTask.

    The same uuid again is no conflict.
    """
    if added.uuid != new.uuid and options.on_conflict == "error":
        raise DuplicateTask(f"{name}: a task with unique key {new.unique!r} is alive already: {added.uuid}")
    return added.fresh


def build_headers(call_options: AddOptions, label: str) -> Headers:
    at = call_options.get("at")
    metadata = call_options.get("metadata")
    if not (label or at or metadata):
        return NO_HEADERS
    iso = None if at is None else at.isoformat(timespec="microseconds")
    return Headers(at=iso, scheduled_for=None, label=label, metadata=None if metadata is None else dict(metadata))


def due_time(call_options: AddOptions, now: float = 0) -> tuple[int | None, float]:
    """(at, after) in milliseconds."""
    if not call_options:
        return None, 0
    if "at" not in call_options:
        return None, round(to_seconds(call_options.get("after", 0), "options(after)") * 1000, 3)
    if "after" in call_options:
        raise ArgumentError("options(at=…, after=…): give one of them")
    at = to_ms(call_options["at"])
    fraction = call_options["at"].microsecond % 1000
    if fraction and at - 1 + fraction / 1000 <= now:
        at -= 1  # to_ms rounds up, but this moment has passed
    return at, 0


def task_policy(template: TaskTemplate, call_options: AddOptions, cost: float = 1) -> Policy:
    """One object for all tasks with the same policy: a million pending ones share it."""
    key: object = (template.owner.client, cost)
    if call_options:
        key = (
            key,
            str(call_options.get("priority")),
            call_options.get("expires"),
            "expires" in call_options,
            tuple(call_options.get("tags", ())),
        )
    policy = template.policies.get(key)
    if policy is None:
        policy = _policy(template, call_options, cost)
        if len(template.policies) >= _MAX_POLICIES:
            template.policies.clear()
        template.policies[key] = policy
    return policy


def _policy(template: TaskTemplate, call_options: AddOptions, cost: float) -> Policy:
    options = template.options
    priority = parse_priority(call_options["priority"]) if "priority" in call_options else options.priority
    expires = options.expires
    if "expires" in call_options:  # None: this call does not expire, whatever the definition says
        given = call_options["expires"]
        expires = None if given is None else to_duration_ms(given, "options(expires)")
    return Policy(
        priority=priority,
        boost=priority * AGING,
        cost=cost,
        on_conflict="replace" if options.on_conflict == "replace" else "keep",
        unique_for=options.unique_for,
        expires=expires,
        max_crashes=options.max_crashes,
        tags=parse_tags(call_options["tags"]) if "tags" in call_options else options.tags,
        reply_to=template.owner.client,
    )
