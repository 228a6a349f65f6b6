"""Pages of the naive store: all rows are sorted at every call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from onthedot.stores.contract import Page, Record
from tests.model.rows import Row

_QUEUED = ("ready", "parked", "scheduled")
_ENDED = ("succeeded", "failed", "cancelled")
_OWN_LISTS = ("uuid", "flow", "waits_for")  # filters whose tasks are listed newest first, whatever their state
_Key = tuple[int, int, int]


def find_page(rows: Iterable[Row], fence: int, where: Mapping[str, str], after: str | None, limit: int) -> Page:
    """fence: the last one. The cursor is the last key and the fence of the first page."""
    start: _Key | None = None
    if after is not None:
        try:
            *numbers, fence = map(int, after.split(","))
            first, second, third = numbers
        except ValueError:
            raise ValueError(f"no cursor: {after!r}") from None
        start = first, second, third
    listed = sorted((_key(row, where), row.seen().uuid, row) for row in rows if _is_listed(row, where))
    rest = [(key, row.seen()) for key, _, row in listed if start is None or key > start]
    found: list[Record] = []
    scanned = 0
    for key, record in rest:
        if len(found) == limit:
            break
        scanned += 1
        start = key
        is_requeued = _list_state(where) in _QUEUED and key[0] and record.history.settled_fence > fence
        if matches(record, where) and not is_requeued:
            found.append(record)
    last = rest[scanned - 1][1] if scanned else None
    cursor = None if scanned == len(rest) else ",".join(map(str, (*(start or ()), fence)))
    return Page(found, cursor, scanned, None if last is None else _time(last, where))


def _list_state(where: Mapping[str, str]) -> str | None:
    return None if any(name in where for name in _OWN_LISTS) else where.get("state")


def _is_listed(row: Row, where: Mapping[str, str]) -> bool:
    return _list_state(where) in (None, row.seen().state)


def _key(row: Row, where: Mapping[str, str]) -> _Key:
    record = row.seen()
    state = _list_state(where)
    if state in _QUEUED:
        if row.lifted or row.chore is not None or row.lease is not None:
            return 0, 0, record.seq
        return 1, record.due if state == "scheduled" else record.rank, record.seq
    if state == "waiting":
        return 0, 0, record.seq
    if state in _ENDED:
        return 0, -(record.history.ended or 0), -record.seq
    return 0, 0, -record.seq


def _time(record: Record, where: Mapping[str, str]) -> int:
    state = _list_state(where)
    if state in _ENDED:
        return record.history.ended or 0
    if state == "scheduled":
        return record.due
    return record.rank if state in _QUEUED else record.added


def matches(record: Record, where: Mapping[str, str]) -> bool:
    tests: dict[str, Callable[[str], bool]] = {
        "uuid": lambda text: record.uuid[: len(text)] == text,
        "uuid_end": lambda text: record.uuid[-len(text) :] == text,
        "source": lambda text: record.source == text,
        "state": lambda text: record.state == text,
        "tag": lambda text: text in record.policy.tags,
        "unique": lambda text: record.unique == text,
        "lane": lambda text: record.lane == text,
        "flow": lambda text: _belongs_to(record, text),
        "waits_for": lambda text: any(name == text for name, _ in record.wait.counters) if record.wait else False,
        "since": lambda text: record.added >= int(text),
        "until": lambda text: record.added < int(text),
    }
    return all(tests[name](text) for name, text in where.items())


def _belongs_to(record: Record, flow: str) -> bool:
    if record.links is None or record.links.flow is None:
        return False
    return record.links.flow == (record.uuid if flow == "*" else flow)
