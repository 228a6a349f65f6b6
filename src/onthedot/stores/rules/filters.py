"""Filters of `find` and `find_events`: the same names, and the same meaning, in every store."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onthedot.stores.contract import OutboxEvent, Record


def _belongs_to(record: Record, flow: str) -> bool:
    """flow: of this uuid, or "*": the last task of one."""
    own = None if record.links is None else record.links.flow
    return own is not None and own == (record.uuid if flow == "*" else flow)


FILTERS: dict[str, Callable[[Record, str], bool]] = {
    "uuid": lambda record, value: record.uuid.startswith(value),
    "uuid_end": lambda record, value: record.uuid.endswith(value),
    "source": lambda record, value: record.source == value,
    "state": lambda record, value: record.state == value,
    "tag": lambda record, value: value in record.policy.tags,
    "unique": lambda record, value: record.unique == value,
    "lane": lambda record, value: record.lane == value,
    "flow": _belongs_to,
    "waits_for": lambda record, value: record.wait is not None and value in dict(record.wait.counters),
    "since": lambda record, value: record.added >= int(value),
    "until": lambda record, value: record.added < int(value),
}

EVENT_FILTERS: dict[str, Callable[[OutboxEvent], str | None]] = {
    "id": lambda stored: stored.event.id,
    "status": lambda stored: stored.status,
    "topic": lambda stored: stored.event.topic,
    "key": lambda stored: stored.event.key,
    "correlation": lambda stored: stored.event.correlation_id,
}


def check(where: Mapping[str, str]) -> None:
    _check_known(where, FILTERS)


def check_event_filters(where: Mapping[str, str]) -> None:
    _check_known(where, EVENT_FILTERS)


def _check_known(where: Mapping[str, str], filters: Mapping[str, object]) -> None:
    if unknown := where.keys() - filters.keys():
        raise ValueError(f"cannot filter by {', '.join(sorted(unknown))}; known: {', '.join(filters)}")


def fits(record: Record, where: Mapping[str, str]) -> bool:
    return all(FILTERS[name](record, value) for name, value in where.items())


def event_fits(stored: OutboxEvent, where: Mapping[str, str]) -> bool:
    return all(_is_wanted(EVENT_FILTERS[name](stored), name, value) for name, value in where.items())


def _is_wanted(found: str | None, name: str, wanted: str) -> bool:
    if name == "topic" and found is not None and wanted.startswith("*"):  # no topic has a star
        return found.endswith(wanted[1:])
    return found == wanted
