"""Counters and waits: ends and signals raise counters, and a wait is over when its counter has its value."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from typing import assert_never

from onthedot.errors import StoreFull
from onthedot.stores.contract import MAX_KEPT_SIGNALS, Counter, NewSignal, Record, Wait
from onthedot.stores.rules.places import due_in, end_as_chore, wake
from onthedot.stores.rules.task_tables import TaskTables, waits_of


def uncount_end(tables: TaskTables, record: Record) -> None:
    """Lower the counters of a failed or cancelled task that is revived."""
    if record.links is not None:
        for name in record.links.increments:
            tables.raise_counter(name, -1, -1)


def end_waits(tables: TaskTables, limit: int) -> int:
    """Make tasks due whose counter has reached its value, at most `limit`; return how many waits were over."""
    reached = tables.pop_reached(limit)
    woken: list[tuple[Record, int]] = []
    dues: dict[int, int | None] = {}  # by the id of a wait, which the tasks of a group share; None: it is not met
    for wait, _, sharing in waits_of(reached):
        if id(wait) not in dues:
            dues[id(wait)] = due_in(wait.delay, tables.now) if is_met(wait, _first_reached(tables, wait)) else None
        due = dues[id(wait)]
        if due is None:
            for record in sharing:
                end_as_chore(tables, record, "upstream")
        else:
            woken += [(record, due) for record in sharing]
    wake(tables, woken)
    tables.notifications.wait_over = len(reached) == limit
    return len(reached)


def _first_reached(tables: TaskTables, wait: Wait) -> Counter:
    """The first of its counters that has the value it waits for."""
    counters = ((tables.counter(name), value) for name, value in wait.counters)
    return next(counter for counter, value in counters if counter.value >= value)


def is_met(wait: Wait, counter: Counter) -> bool:
    """Whether the ends that a task waited for are as it requires."""
    match wait.requires:
        case "any":
            return True
        case "success":
            return counter.failed == 0
        case "failure":
            return counter.failed > 0
        case _:
            assert_never(wait.requires)


def signal(tables: TaskTables, signals: Sequence[NewSignal]) -> list[bool]:
    """Keep signals and raise their counters; False: this id is kept under this name."""
    new = {(each.name, each.id): each for each in reversed(signals) if not tables.has_signal(each.name, each.id)}
    for name, count in Tally(name for name, _ in new).items():
        if tables.count_signals(name) + count > MAX_KEPT_SIGNALS:
            raise StoreFull(
                f"{MAX_KEPT_SIGNALS} signals are kept under the name {name!r}: put an id into the name, "
                "or keep signals for a shorter time"
            )
    answers: list[bool] = []
    for each in signals:
        is_new = new.pop((each.name, each.id), None) is not None
        if is_new:
            number = max(int(tables.now), tables.counter(each.name).value + 1)
            tables.append_signal(each, number)
        answers.append(is_new)
    return answers
