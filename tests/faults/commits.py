"""What every commit has left running, by the store's own log: it has a row a call, written by that call's commit."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from onthedot.stores.contract import ChangeEntry, ChangePage
from tests.faults import shop

Moves = Sequence[tuple[str, str]]  # uuid and where it went
_ROWS = 5_000


class Commits:
    """Follows the log of the shop's store from now on.

    order: the numbers of all rows as they were committed, from a store whose numbers do not say it. A store without
    it counts moves by its numbers, so that a row that is missing would be seen there, too.
    """

    def __init__(self, order: Callable[[], list[int]] | None = None) -> None:
        self._order = order
        self._began = self._cursor = int(_read("", 1).cursor)
        self._rows: dict[int, list[tuple[str, str]]] = {}

    def follow(self) -> None:
        """Reads what is new; in a long run now and then, since the log is bounded."""
        while (page := _read(str(self._cursor), _ROWS)).entries:
            for entry in page.entries:
                self._keep(entry)
            self._cursor = int(page.cursor)

    def _keep(self, entry: ChangeEntry) -> None:
        moves = self._rows.setdefault(int(entry.cursor), [])
        moves.extend((transition.uuid, transition.state) for transition in entry.transitions)

    def rows(self) -> list[Moves]:
        """All of them, in the order of commits; AssertionError, if one is missing."""
        self.follow()
        if self._order is None:
            numbers = sorted(self._rows)
            for before, number in itertools.pairwise([self._began, *numbers]):
                moved = len(self._rows[number])
                assert number - before == moved, f"the log says {moved} moves up to {number}, after {before}"
            return [self._rows[number] for number in numbers]
        numbers = self._order()
        for number in set(numbers) - self._rows.keys():  # what committed so late that the log was past it
            for entry in _read(str(number - 1), 1).entries:
                self._keep(entry)
        assert set(numbers) == self._rows.keys(), "the log and the order of commits do not tell of the same calls"
        return [self._rows[number] for number in numbers]


def _read(after: str, limit: int) -> ChangePage:
    return shop.app._runtime.portal.run_sync(lambda client: client.store.changes(after, limit))


class Seen(NamedTuple):
    most: Mapping[object, int]  # by group: how many of it were running after a commit, at most
    starts: Mapping[str, int]  # by uuid


def replayed(rows: Iterable[Moves], group_of: Mapping[str, object]) -> Seen:
    """Looks after every row. What a row says of a task is not in order: a claim is the last thing that a call does."""
    running: dict[object, set[str]] = {}
    most, starts = Counter[object](), Counter[str]()
    for row in rows:
        touched = {uuid: group_of[uuid] for uuid, _ in row if uuid in group_of}
        begun = {uuid for uuid, state in row if state == "running" and uuid in touched}
        for uuid, group in touched.items():
            there = running.setdefault(group, set())
            if uuid in begun:
                there.add(uuid)
                starts[uuid] += 1
            else:
                there.discard(uuid)
        for group in set(touched.values()):
            most[group] = max(most[group], len(running[group]))
    left = {uuid for some in running.values() for uuid in some}
    assert not left, f"by the log {len(left)} still run: it has not told of their ends"
    return Seen(most, starts)
