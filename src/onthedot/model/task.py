"""A task as users create it, and as they read it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from onthedot.clock.epoch import to_ms
from onthedot.codec.plain_json import json_value
from onthedot.codec.task_failure import TaskFailure
from onthedot.model.uuid7 import new_uuid
from onthedot.model.value_errors import InvalidOption, SettingError

NAME = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
ResultStatus: TypeAlias = Literal["stored", "streamed", "pending", "none", "expired", "not_stored"]


class TaskState(StrEnum):
    """The state of a task. It compares equal to its name.

    >>> TaskState.FAILED == "failed", TaskState.FAILED.ended
    (True, True)
    """

    SCHEDULED = "scheduled"
    """It has a due time in the future, also for a retry."""
    READY = "ready"
    """It is due, and starts when a worker and its limits have capacity."""
    RUNNING = "running"
    """A worker runs it."""
    WAITING = "waiting"
    """It waits for a signal or for other tasks, and holds no slot."""
    SUCCEEDED = "succeeded"
    """Its function returned."""
    FAILED = "failed"
    """It failed for good: the dead-letter box, whose tasks can be listed, inspected and retried."""
    CANCELLED = "cancelled"
    """It was cancelled, or expired."""

    @property
    def ended(self) -> bool:
        """Whether it is succeeded, failed or cancelled."""
        return self in _ENDED


_ENDED = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED})


class Task:
    """One unit of work for a consumer.

    Args:
        source: name of the consumer that gets it.
        args: its arguments, by name.
        schedule_at: when it is due, an aware datetime; by default now.
        uuid: its id, 1 to 200 of ``A-Z a-z 0-9 _ . : -``; by default a new uuid.

    >>> task = Task("email", {"to": "ann"})
    >>> Task.from_dict(task.to_dict()) == task
    True
    """

    __slots__ = ("args", "schedule_at", "source", "uuid")

    def __init__(
        self,
        source: str,
        args: Mapping[str, Any] | None = None,
        schedule_at: datetime | None = None,
        uuid: str | None = None,
    ) -> None:
        self.source: str = check_name(source, "source")
        if args is not None and not isinstance(args, Mapping):
            raise TypeError(f"args of a task must be a dict, not {type(args).__name__}")
        self.args: dict[str, Any] = dict(args or {})
        self.schedule_at: datetime = datetime.now(UTC) if schedule_at is None else schedule_at
        if not isinstance(self.schedule_at, datetime):
            raise TypeError(f"schedule_at must be a datetime, not {type(schedule_at).__name__}")
        to_ms(self.schedule_at)  # raises for a naive one
        self.uuid: str = new_uuid() if uuid is None else check_uuid(uuid)

    def to_dict(self) -> dict[str, Any]:
        """For logs and files: ``uuid, args, source, schedule_at`` (ISO 8601, microseconds)."""
        return {
            "uuid": self.uuid,
            "args": self.args,
            "source": self.source,
            "schedule_at": self.schedule_at.isoformat(timespec="microseconds"),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Task:
        """The task of a dict from ``to_dict``.

        Args:
            data: The dict; unknown keys are ignored.
        """
        missing = {"uuid", "source", "schedule_at"} - data.keys()
        if missing:
            raise ValueError(f"not a task: {', '.join(sorted(missing))} missing in {dict(data)!r}")
        at = data["schedule_at"]
        if not isinstance(at, str):
            raise TypeError(f"not a task: schedule_at must be a string in ISO 8601, not {at!r}")
        return cls(data["source"], data.get("args"), datetime.fromisoformat(at), data["uuid"])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Task):
            return NotImplemented
        return (self.uuid, self.source, self.args, self.schedule_at) == (
            other.uuid, other.source, other.args, other.schedule_at,
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash(self.uuid)

    def __repr__(self) -> str:
        return f"Task({self.source!r}, {self.args!r}, {self.schedule_at.isoformat()!r}, uuid={self.uuid!r})"


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """The state and history of a task, from ``app.get(uuid)`` or ``handle.info()``."""

    uuid: str
    """Its id."""
    source: str
    """Name of its function or consumer."""
    state: TaskState
    """Where it is: scheduled, ready, running, waiting, succeeded, failed or cancelled."""
    args: Mapping[str, Any]
    """Its arguments, by name."""
    priority: int
    """1 to 10, 10 first."""
    attempt: int
    """Number of the current or next run, from 1; of the last one, if it has ended."""
    retries: int
    """How many runs failed and were retried."""
    crashes: int
    """How often a worker died during a run."""
    added_at: datetime
    """When it was added."""
    schedule_at: datetime
    """When it is or was due."""
    started_at: datetime | None = None
    """When its last run started."""
    ended_at: datetime | None = None
    """When it succeeded, failed or was cancelled."""
    worker: str | None = None
    """Session of the worker that runs or last ran it."""
    label: str = ""
    """Its short text for people."""
    tags: tuple[str, ...] = ()
    """Words to find it by."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Data that travels with it."""
    unique: str | None = None
    """Its unique key."""
    lane: str | None = None
    """The lane whose limits it shares with others."""
    reason: str = ""
    """Why it ended without an error, as in "expired"."""
    error: TaskFailure | None = None
    """The error of its last attempt, unless it succeeded."""
    errors: tuple[TaskFailure, ...] = ()
    """The errors of all its attempts, as far as they are kept."""
    progress: tuple[float, float] | None = None
    """Its last ``ctx.progress(done, total)``."""
    cancel_wanted: bool = False
    """Whether a cancel was requested, and it has not ended yet."""
    result: Any = None
    """The value that it returned; None if `result_status` is not "stored"."""
    result_status: ResultStatus = "pending"
    """"stored"; "pending": it has not ended; "none": it failed or was cancelled; "expired": the result is no longer
    kept; "not_stored": the result could not be encoded; "streamed": the items of a stream, which its handle reads.
    """
    duration: timedelta | None = None
    """How long its last run took; None if it has not ended, or ended without a run."""
    flow: str | None = None
    """The uuid of the flow that it belongs to."""

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON: times as text in ISO 8601, the duration in seconds."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["duration"] = None if self.duration is None else self.duration.total_seconds()
        return {name: json_value(value) for name, value in values.items()}


def check_name(name: object, what: str) -> str:
    """A name of an app, source, schedule or topic; SettingError, with `what` it names, for anything else."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise SettingError(f"{what} {name!r} is not a name: 1 to 200 of A-Z a-z 0-9 _ . : -")
    return name


def check_uuid(uuid: object) -> str:
    if not isinstance(uuid, str) or not NAME.fullmatch(uuid):
        raise InvalidOption(f"uuid {uuid!r} is not an id: 1 to 200 of A-Z a-z 0-9 _ . : -")
    return uuid


def possible_uuids(uuids: Sequence[str]) -> tuple[str, ...]:
    """Those that a task can have; stores need not take others."""
    return tuple([uuid for uuid in uuids if NAME.fullmatch(uuid)])
