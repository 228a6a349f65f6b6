"""The tasks that run after every commit, by the change feed of the store: it has one entry per call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from onthedot.stores.contract import ChangePage
from tests.faults import task_app
from tests.support.app_access import call_store

Transitions = Sequence[tuple[str, str]]  # uuid and new state
_ROWS = 5_000
_ALL = 10**9


class CommitLog:
    """Follows the change feed of the app's store from now on.

    ordered: returns the transitions of every call in the order of commits, for a store whose feed is in the order in
    which they were read. In other stores the cursor counts transitions, which shows missing ones.
    """

    def __init__(self, ordered: Callable[[], list[Transitions]] | None = None) -> None:
        self._ordered = ordered
        self._cursor = _read("", 1).cursor
        self._rows: list[Transitions] = []

    def follow(self) -> None:
        """Reads new rows. A long test calls it repeatedly, because the change feed is bounded."""
        while (page := _read(self._cursor, _ROWS)).entries:
            assert not page.gap, f"the change feed has lost entries after {self._cursor}"
            rows = [[(each.uuid, each.state) for each in entry.transitions] for entry in page.entries]
            if self._ordered is None:
                count = sum(map(len, rows))
                is_complete = int(page.cursor) - int(self._cursor) == count
                assert is_complete, f"the feed has {count} transitions up to {page.cursor}, after {self._cursor}"
            self._rows += rows
            self._cursor = page.cursor

    def rows(self) -> list[Transitions]:
        """The transitions of every call, in the order of commits; fails if one is missing or doubled."""
        self.follow()
        if self._ordered is None:
            return self._rows
        ordered = self._ordered()
        is_same = _sorted(ordered) == _sorted(self._rows)
        assert is_same, "the change feed and the order of commits have different calls"
        return ordered


def _sorted(rows: Iterable[Transitions]) -> list[Transitions]:
    return sorted(sorted(row) for row in rows)


def _read(after: str, limit: int) -> ChangePage:
    return call_store(task_app.app, lambda store: store.changes(after, limit, _ALL))


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
