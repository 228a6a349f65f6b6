"""The tasks that run after every commit, by the change feed of the store: it has one row per call."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from onthedot.stores.contract import ChangeEntry, ChangePage
from tests.faults import task_app
from tests.support.app_access import call_store

Transitions = Sequence[tuple[str, str]]  # uuid and new state
_ROWS = 5_000


class CommitLog:
    """Follows the change feed of the app's store from now on.

    order: returns the numbers of all rows in the order of commits, for a store whose numbers do not have this order. In
    other stores the number of a row counts transitions, which shows missing rows.
    """

    def __init__(self, order: Callable[[], list[int]] | None = None) -> None:
        self._order = order
        self._began = self._cursor = int(_read("", 1).cursor)
        self._rows: dict[int, list[tuple[str, str]]] = {}

    def follow(self) -> None:
        """Reads new rows. A long test calls it repeatedly, because the change feed is bounded."""
        while (page := _read(str(self._cursor), _ROWS)).entries:
            for entry in page.entries:
                self._keep(entry)
            self._cursor = int(page.cursor)

    def _keep(self, entry: ChangeEntry) -> None:
        transitions = self._rows.setdefault(int(entry.cursor), [])
        transitions.extend((transition.uuid, transition.state) for transition in entry.transitions)

    def rows(self) -> list[Transitions]:
        """All rows in the order of commits; fails if one is missing."""
        self.follow()
        if self._order is None:
            numbers = sorted(self._rows)
            for before, number in itertools.pairwise([self._began, *numbers]):
                count = len(self._rows[number])
                assert number - before == count, f"the feed has {count} transitions up to {number}, after {before}"
            return [self._rows[number] for number in numbers]
        numbers = self._order()
        for number in set(numbers) - self._rows.keys():  # committed after later rows had been read
            for entry in _read(str(number - 1), 1).entries:
                self._keep(entry)
        assert set(numbers) == self._rows.keys(), "the change feed and the order of commits have different calls"
        return [self._rows[number] for number in numbers]


def _read(after: str, limit: int) -> ChangePage:
    return call_store(task_app.app, lambda store: store.changes(after, limit))


class ReplayResult(NamedTuple):
    most: Mapping[object, int]  # by group: the largest number of running tasks after a commit
    starts: Mapping[str, int]  # by uuid


def replay(rows: Iterable[Transitions], group_of: Mapping[str, object]) -> ReplayResult:
    """Counts after every row. Transitions of a task within a row are unordered: a claim is the last step of a call."""
    running: dict[object, set[str]] = {}
    most = Counter[object]()
    starts = Counter[str]()
    for row in rows:
        touched = {uuid: group_of[uuid] for uuid, _ in row if uuid in group_of}
        begun = {uuid for uuid, state in row if state == "running" and uuid in touched}
        for uuid, group in touched.items():
            alive = running.setdefault(group, set())
            if uuid in begun:
                alive.add(uuid)
                starts[uuid] += 1
            else:
                alive.discard(uuid)
        for group in set(touched.values()):
            most[group] = max(most[group], len(running[group]))
    left = {uuid for some in running.values() for uuid in some}
    assert not left, f"the change feed has no end of {len(left)} running tasks"
    return ReplayResult(most, starts)
