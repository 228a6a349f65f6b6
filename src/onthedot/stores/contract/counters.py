"""Counters: the relation of a task to others, and what a waiting task waits for."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

MAX_WAIT_COUNTERS = 8  # per wait
MAX_INCREMENTS = 100  # counters that the end of one task increments
COUNTER_KEEP = 2_592_000_000  # ms that a counter is kept after its last change, if no task waits for it


class Wait(Struct, frozen=True, gc=False):
    """The condition of a waiting task: a value of a counter, or the first of several.

    The wait is over when one of its counters has reached its value. The next turn with a claim request detects that,
    before the alarms (≤ BATCH of each), and makes the task due. `requires` is judged then, by the failures of that
    counter: success needs none, failure needs at least one; otherwise the task becomes a chore ("upstream").
    """

    counters: tuple[tuple[str, int], ...]  # (name, value); 1 to MAX_WAIT_COUNTERS; the first that is reached counts
    timeout: int | None = None  # ms; then a task that has started is due, and one that has not is a chore ("expired")
    delay: int = 0  # ms from the end of the wait to the due time
    requires: Literal["success", "any", "failure"] = "any"


class Links(Struct, frozen=True, gc=False):
    """The relation of a task to others. Most tasks have none; the tasks of a group share one object."""

    flow: str | None = None  # uuid of the flow's last task; find() by it; purge keeps the members while it lives
    increments: tuple[str, ...] = ()  # counters that its end increments by one; ≤ MAX_INCREMENTS
    waits: Wait | None = None  # it starts as waiting; due `waits.delay` ms after the wait, and not before `at`


class Counter(Struct, frozen=True, gc=False):
    """A number under a name. No call creates one: it is 0 until something raises it.

    The end of a task increments its counters in the step that settles it, and `failed` too unless the task succeeded;
    a revival decrements them. So value = the number of tasks that increment it and have ended. A signal sets the
    counter of its name to the time in ms, or to value + 1 if that is larger.
    """

    value: int = 0
    failed: int = 0


NO_COUNTER = Counter()
