"""Ids of events, and what an event takes over from the run of the task in which it is made."""

from __future__ import annotations

from contextvars import ContextVar
from datetime import date
from hashlib import sha1
from uuid import UUID

import msgspec

_NAMESPACE = UUID("5b0c3b0e-9a0d-5d6e-8f43-0a9e5c1d7e21").bytes

inside_step: ContextVar[str] = ContextVar("onthedot_step", default="")
"""The key of the step whose function is called here; empty outside of a step."""


def event_id(*parts: str | int | UUID | date) -> str:
    """A stable id from any parts: the same parts give the same id, in any process and at any time.

    For code that may publish twice, such as a flow that runs again: the first event with an id is kept.

    Args:
        parts: what makes the event unique, such as the id of a command and a number.

    >>> event_id("cmd-7", 3)
    '92841a55-72c7-55e2-ba46-51d1af155ffe'
    >>> event_id("cmd-7", 3) == event_id("cmd-7", "3")
    False
    """
    if not parts:
        raise TypeError("event_id() needs at least one part: without any, all ids would be the same")
    for part in parts:
        if not isinstance(part, str | int | UUID | date):
            raise TypeError(
                f"event_id(): a part is of type {type(part).__name__}; pass str, int, UUID, date or datetime"
            )
    digest = sha1(_NAMESPACE + msgspec.json.encode(parts), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"  # a uuid5


class EventOrigin:
    """The run of a task in which events are made.

    Ids derive from the task, its revives, and the number of the event in the run: a repeated run makes the same ids.
    Events of a step are numbered apart, since a run that finds the step saved does not make them again.

    Args:
        task: uuid of the task.
        revives: by an operator; each makes new ids.
        correlation_id: of the event that the task handles, else of the task's metadata.
        causation_id: id of the event that the task handles.
        retries: used by the task that handles an event.

    >>> first, again = EventOrigin("t1", 0), EventOrigin("t1", 0)
    >>> ids = [first.next_id(), first.next_id()]
    >>> ids == [again.next_id(), again.next_id()], ids[0] == ids[1]
    (True, False)
    """

    def __init__(
        self,
        task: str,
        revives: int,
        *,
        correlation_id: str | None = None,
        causation_id: str | None = None,
        retries: int = 0,
    ) -> None:
        self.correlation_id = correlation_id
        self.causation_id = causation_id
        self.retries = retries
        self._task = task
        self._revives = revives
        self._made: dict[str, int] = {}  # events, by step

    def next_id(self) -> str:
        """The id of the next event of this run."""
        step = inside_step.get()
        position = self._made.get(step, 0)
        self._made[step] = position + 1
        return event_id(self._task, self._revives, step, position)
