"""The nouns that users hold: a Task to be done, and what has become of one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from onthedot.clock.epoch import to_ms
from onthedot.model.uuid7 import new_uuid

NAME = re.compile(r"[A-Za-z0-9_.:-]{1,200}")


class TaskState(StrEnum):
    """Where a task is. ``failed`` is the dead-letter box: it can be listed, looked at and retried."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in _ENDED


_ENDED = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED})


class Task:
    """One unit of work for a consumer: what, for whom, when.

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
        to_ms(self.schedule_at)  # refuses a naive one
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
        """The task that ``to_dict`` was made from; unknown keys are ignored."""
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
class TaskFailure:
    """How one attempt went wrong."""

    type: str
    message: str
    traceback: str = ""
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """What is known of a task, as ``app.get(uuid)`` and ``handle.info()`` tell it."""

    uuid: str
    source: str
    state: TaskState
    args: Mapping[str, Any]
    priority: int
    attempt: int
    retries: int
    crashes: int
    added_at: datetime
    schedule_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    worker: str | None = None
    label: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unique: str | None = None
    lane: str | None = None
    reason: str = ""
    error: TaskFailure | None = None
    errors: tuple[TaskFailure, ...] = ()
    progress: tuple[float, float] | None = None
    cancel_wanted: bool = False


def check_name(name: object, what: str) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"{what} {name!r} is not a name: 1 to 200 of A-Z a-z 0-9 _ . : -")
    return name


def check_uuid(uuid: object) -> str:
    if not isinstance(uuid, str) or not NAME.fullmatch(uuid):
        raise ValueError(f"uuid {uuid!r} is not an id: 1 to 200 of A-Z a-z 0-9 _ . : -")
    return uuid
