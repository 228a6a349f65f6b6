"""What failed alike."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from onthedot.task import TaskFailure, TaskInfo

_VARIES = re.compile(r"""(?<!\w)'[^']*'|"[^"]*"|`[^`]*`|\b(?=\w*\d)[0-9a-fA-F-]{8,}\b|0x[0-9a-fA-F]+|\d+(?:\.\d+)?""")


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Tasks that failed alike: same source and error, up to what varies in its message."""

    group: str
    source: str
    type: str
    message: str
    count: int
    last: datetime | None
    example: str


def grouped(failed: Iterable[TaskInfo]) -> list[FailureGroup]:
    """By error, the most frequent first."""
    groups: dict[str, list[TaskInfo]] = {}
    for info in failed:
        if info.error is not None:
            groups.setdefault(group_of(info.source, info.error), []).append(info)
    found: list[FailureGroup] = []
    for group, infos in groups.items():
        last = max(infos, key=lambda info: info.ended_at or info.added_at)
        assert last.error is not None
        shown = blanked(last.error.message) if len(infos) > 1 else last.error.message
        found.append(FailureGroup(group, last.source, last.error.type, shown, len(infos), last.ended_at, last.uuid))
    return sorted(found, key=lambda group: -group.count)


def group_of(source: str, error: TaskFailure) -> str:
    """A short name for errors that are alike.

    >>> one, two = TaskFailure("KeyError", "no order 17 for 'ann'"), TaskFailure("KeyError", "no order 4 for 'bob'")
    >>> group_of("send", one) == group_of("send", two)
    True
    """
    return sha256(f"{source}\n{error.type}\n{blanked(error.message)}".encode()).hexdigest()[:8]


def blanked(message: str) -> str:
    """Without numbers, ids and quoted parts: what differs between errors of one kind."""
    return _VARIES.sub("…", message)
