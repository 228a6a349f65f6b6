"""Pages of `find`: the order of a list, cursors, and the bound of a scan. The stores read candidates in that order.

A candidate is a key of an order, which may be outdated: a record is listed if its own key is still the same. So an
index may have keys of tasks that have left it, and two keys of one task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from onthedot.stores.contract import ENDED, Page, Record
from onthedot.stores.rules.filters import check
from onthedot.stores.rules.records import UNQUEUED_REASONS

MOST_SCANNED = 20_000  # candidates per call
MOST_NAMED = 2_000  # tasks whose uuid has a beginning: more are found by a scan, newest first
_MOST_AT_ONCE = 2_000  # candidates per read

Key: TypeAlias = tuple[int, int]
"""The moment by which a list is ordered, 0 if that is the order of adding; seq."""
ListName: TypeAlias = Literal[
    "added",
    "named",
    "running",
    "flow",
    "flows",
    "waiters",
    "unqueued",
    "ready",
    "parked",
    "scheduled",
    "waiting",
    "ended",
]


class Candidate(NamedTuple):
    """A task that may be on the page."""

    moment: int
    seq: int
    time: int  # of `Page.scanned_to`


class _List(NamedTuple):
    key: Callable[[Record], Key | None]  # None: it is not in this list
    is_descending: bool


class ReadRequest(NamedTuple):
    """The next candidates of a list: at most `size`, in its order, behind a key."""

    name: ListName
    after: Key | None
    size: int


def _rank(record: Record) -> Key | None:
    return None if record.history.reason in UNQUEUED_REASONS else (record.rank, record.seq)


def _due(record: Record) -> Key | None:
    return None if record.history.reason in UNQUEUED_REASONS else (record.due, record.seq)


def _unqueued(record: Record) -> Key | None:
    return (0, record.seq) if record.history.reason in UNQUEUED_REASONS else None


def _ended(record: Record) -> Key | None:
    return None if record.history.ended is None else (record.history.ended, record.seq)


def _added(record: Record) -> Key | None:
    return 0, record.seq


_LISTS: dict[ListName, _List] = {
    "added": _List(_added, is_descending=True),
    "named": _List(_added, is_descending=True),
    "running": _List(_added, is_descending=True),
    "flow": _List(_added, is_descending=True),
    "flows": _List(_added, is_descending=True),
    "waiters": _List(_added, is_descending=True),
    "unqueued": _List(_unqueued, is_descending=False),
    "ready": _List(_rank, is_descending=False),
    "parked": _List(_rank, is_descending=False),
    "scheduled": _List(_due, is_descending=False),
    "waiting": _List(_added, is_descending=False),
    "ended": _List(_ended, is_descending=True),
}
_CHANGING: frozenset[ListName] = frozenset({"ready", "parked", "scheduled"})  # a requeued task has another key


def lists_of(where: Mapping[str, str]) -> tuple[ListName, ...]:
    """The lists that have all tasks that may match, one after the other."""
    if "uuid" in where:
        return ("named",)
    if "flow" in where:
        return ("flows",) if where["flow"] == "*" else ("flow",)
    if "waits_for" in where:
        return ("waiters",)
    match where.get("state"):
        case "running":
            return ("running",)
        case "ready":
            return "unqueued", "ready"
        case "parked":
            return "unqueued", "parked"
        case "scheduled":
            return "unqueued", "scheduled"
        case "waiting":
            return ("waiting",)
        case state if state in ENDED:
            return ("ended",)
        case _:
            return ("added",)


def source_of(where: Mapping[str, str]) -> str | None:
    """The source of all tasks that may match, if the filters imply one."""
    if "source" in where:
        return where["source"]
    head, slash, _ = where.get("lane", "").partition("/")
    return head if slash and not head.startswith("@") else None


def is_behind(name: ListName, candidate: Key, after: Key | None) -> bool:
    """Whether it comes later in the list than a key."""
    if after is None:
        return True
    return candidate < after if _LISTS[name].is_descending else candidate > after


def in_order(name: ListName, candidates: Sequence[Candidate], after: Key | None, size: int) -> list[Candidate]:
    """The first of candidates in any order."""
    behind = {each for each in candidates if is_behind(name, each[:2], after)}
    return sorted(behind, key=lambda each: each[:2], reverse=_LISTS[name].is_descending)[:size]


class PageBuilder:
    """Builds one page. A store reads what `next_request` asks for, until that is None."""

    def __init__(
        self, where: Mapping[str, str], after: str | None, limit: int, most_scanned: int = MOST_SCANNED
    ) -> None:
        check(where)
        self._names: tuple[ListName, ...] = lists_of(where)
        self._limit = limit
        self._remaining = most_scanned
        self._rows: list[Record] = []
        self._scanned = 0
        self._scanned_to: int | None = None
        self._is_over = False
        self._list = 0
        self._after: Key | None = None
        self._size = max(1, limit) + 1  # one more shows whether another page follows
        self.fence: int | None = None
        """The last fence when the first page was read. A task that was settled since has been requeued, and perhaps
        listed before."""
        if after is not None:
            self._continue(after)

    @property
    def needs_fence(self) -> bool:
        """The store sets `fence` before it reads candidates."""
        return self.fence is None and not _CHANGING.isdisjoint(self._names)

    def next_request(self) -> ReadRequest | None:
        if self._is_over or self._remaining <= 0 or len(self._rows) >= self._limit:
            return None
        return ReadRequest(self._names[self._list], self._after, min(self._size, self._remaining))

    def take(
        self,
        request: ReadRequest,
        candidates: Sequence[Candidate],
        records: Mapping[int, Record],
        *,
        is_over: bool | None = None,
    ) -> None:
        """candidates: the answer. records: those of them that match the filters, by seq. is_over: these are the last of
        the list; None: they are if there are fewer than the request asks for."""
        for used, candidate in enumerate(candidates):
            if len(self._rows) >= self._limit:
                self._count(candidates[:used])
                return
            record = records.get(candidate.seq)
            if record is not None and self._is_listed(record, candidate):
                self._rows.append(record)
        self._count(candidates)
        self._size = min(4 * self._size, _MOST_AT_ONCE)
        if len(candidates) < request.size if is_over is None else is_over:
            self._next_list()

    def page(self) -> Page:
        return Page(self._rows, None if self._is_over else self._cursor(), self._scanned, self._scanned_to)

    def _is_listed(self, record: Record, candidate: Candidate) -> bool:
        name = self._names[self._list]
        if record.history.reason == "undecodable" and name in _CHANGING:
            return True  # its rank cannot be read
        if _LISTS[name].key(record) != candidate[:2]:
            return False
        return self.fence is None or name not in _CHANGING or record.history.settled_fence <= self.fence

    def _count(self, candidates: Sequence[Candidate]) -> None:
        self._scanned += len(candidates)
        self._remaining -= len(candidates)
        if candidates:
            last = candidates[-1]
            self._scanned_to = last.time
            self._after = last[:2]

    def _next_list(self) -> None:
        self._after = None
        self._list += 1
        self._is_over = self._list == len(self._names)

    def _cursor(self) -> str:
        key = "" if self._after is None else f"{self._after[0]}.{self._after[1]}"
        return f"{self._list}:{key}:{'' if self.fence is None else self.fence}"

    def _continue(self, cursor: str) -> None:
        try:
            number, key, fence = cursor.split(":")
            self._list = int(number)
            if key:
                moment, seq = key.split(".")
                self._after = int(moment), int(seq)
            if fence:
                self.fence = int(fence)
            self._names[self._list]
        except (ValueError, IndexError):
            raise ValueError(f"cursor {cursor!r} is not one of a page with these filters") from None
