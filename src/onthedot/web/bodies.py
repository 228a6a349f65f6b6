"""The bodies of changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from onthedot.web.schemas import Moment

Text = Annotated[str, Meta(max_length=2000)]
Reason = Annotated[str, Meta(max_length=500)]
RequiredReason = Annotated[str, Meta(min_length=1, max_length=500)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Rule = Annotated[str, Meta(min_length=1, max_length=1000)]
Rate = Annotated[float, Meta(gt=0, le=10_000)]
Seconds = Annotated[float, Meta(ge=0, le=3.2e9)]


class ReasonBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Why, for the audit and for others."""

    reason: Reason = ""


class GivenReason(Struct, frozen=True, forbid_unknown_fields=True):
    """A change that others have to understand."""

    reason: RequiredReason


class PauseBody(Struct, frozen=True, forbid_unknown_fields=True):
    """key: only tasks of this key."""

    reason: RequiredReason
    key: Text | None = None


class ResumeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """key: the pause of this key."""

    reason: Reason = ""
    key: Text | None = None


class TopicPauseBody(Struct, frozen=True, forbid_unknown_fields=True):
    """topic: only events of this one."""

    reason: RequiredReason
    topic: Text | None = None


class TopicResumeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """topic: the pause of this one."""

    topic: Text | None = None


class LimitBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A limit. null is the value of the code; a field that is missing stays. rate: as in 10/s."""

    key: Text | None = None
    cap: Annotated[int, Meta(ge=0, le=1_000_000_000)] | UnsetType | None = UNSET
    rate: Annotated[str, Meta(max_length=50)] | UnsetType | None = UNSET
    burst: Annotated[float, Meta(gt=0, le=1e9)] | UnsetType | None = UNSET
    reason: Reason = ""


class NewTaskBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A task to add. after, expires: seconds; unique: a key; uuid: its id."""

    source: Name
    args: Mapping[str, Any] = {}
    at: Moment | None = None
    after: Annotated[float, Meta(ge=0, le=3.2e9)] | None = None
    priority: Annotated[int, Meta(ge=1, le=10)] | None = None
    unique: Name | None = None
    expires: Annotated[float, Meta(gt=0, le=3.2e9)] | None = None
    tags: Annotated[Sequence[Name], Meta(max_length=50)] = ()
    label: Annotated[str, Meta(max_length=1000)] = ""
    metadata: Mapping[str, Any] = {}
    uuid: Name | None = None
    reason: Reason = ""


class ScheduleBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A schedule to create. grace, jitter: seconds.

    rule: cron, "every 15 min", "07:00", "mon-fri 07:00", or a moment
    """

    name: Name
    source: Name
    rule: Rule
    args: Mapping[str, Any] = {}
    tz: Name = "UTC"
    overlap: Literal["skip", "allow", "queue"] = "skip"
    catch_up: Literal["latest", "all", "none"] = "latest"
    grace: Seconds = 60
    jitter: Seconds = 0
    start: Moment | None = None
    end: Moment | None = None
    priority: Annotated[int, Meta(ge=1, le=10)] | None = None
    tags: Annotated[Sequence[Name], Meta(max_length=50)] = ()
    label: Annotated[str, Meta(max_length=1000)] = ""
    reason: Reason = ""


class ScheduleEditBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fields of a schedule to change; those that are missing stay."""

    source: Name | UnsetType = UNSET
    args: Mapping[str, Any] | UnsetType = UNSET
    rule: Rule | UnsetType = UNSET
    tz: Name | UnsetType = UNSET
    overlap: Literal["skip", "allow", "queue"] | UnsetType = UNSET
    catch_up: Literal["latest", "all", "none"] | UnsetType = UNSET
    grace: Seconds | UnsetType = UNSET
    jitter: Seconds | UnsetType = UNSET
    start: Moment | UnsetType | None = UNSET
    end: Moment | UnsetType | None = UNSET
    reason: Reason = ""


class RetryBody(Struct, frozen=True, forbid_unknown_fields=True):
    """args, at: add a copy of the task with these arguments, or at this time, instead."""

    reason: Reason = ""
    args: Mapping[str, Any] | None = None
    at: Moment | None = None


class SignalBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A signal. id: of a repeat; keep: seconds; to: the uuid of the only task that gets it."""

    payload: Any = None
    id: Name | None = None
    keep: Annotated[float, Meta(gt=0, le=3.2e9)] | None = None
    to: Name | None = None
    reason: Reason = ""
