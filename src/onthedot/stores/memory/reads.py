"""Reads of a memory store: pages of tasks, and the position of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Reversible
from heapq import merge
from itertools import islice
from typing import assert_never

from onthedot.stores.contract import ENDED, MAX_AHEAD, Page, Position, Record
from onthedot.stores.memory.ordered_queue import SEQ_BITS, OrderedQueue
from onthedot.stores.memory.tables import MemoryTables
from onthedot.stores.rules.filters import fits
from onthedot.stores.rules.pages import Candidate, Key, PageBuilder, ReadRequest, in_order, source_of
from onthedot.stores.rules.position import blockers
from onthedot.stores.rules.records import UNQUEUED_REASONS

_FIRST: Key = (-(2**62), 0)  # before every key


def find(tables: MemoryTables, where: Mapping[str, str], after: str | None, limit: int, now: float) -> Page:
    builder = PageBuilder(where, after, limit)
    if builder.needs_fence:
        builder.fence = tables.identity().last_fence
    while (request := builder.next_request()) is not None:
        found = dict(_candidates(tables, where, request))
        current = {each.seq: tables.records[record.uuid] for each, record in found.items()}
        records = {seq: tables.as_seen(record, now) for seq, record in current.items()}
        builder.take(request, list(found), {seq: record for seq, record in records.items() if fits(record, where)})
    return builder.page()


_Found = Iterable[tuple[Candidate, Record]]


def _candidates(tables: MemoryTables, where: Mapping[str, str], request: ReadRequest) -> _Found:
    match request.name:
        case "added" | "named" | "flow" | "flows" | "waiters":
            return islice(_added(tables.records.values(), request.after), request.size)
        case "running":
            leased = (tables.records[uuid] for uuid, claim in tables.leases.items() if not claim.chores)
            return _sorted(leased, request)
        case "unqueued":
            return _sorted((tables.records[uuid] for uuid in tables.unqueued), request)
        case "ready":
            source = source_of(where)
            queues = [
                queue
                for each in (tables.ready, tables.suspects)
                for name, queue in each.items()
                if source is None or name == source
            ]
            return _queued(queues, request)
        case "parked":
            lane = where.get("lane")
            parked = tables.limits.parked
            return _queued([queue for name, queue in parked.items() if lane is None or name == lane], request)
        case "scheduled":
            return _queued([tables.alarms], request)
        case "waiting":
            return _queued([tables.waiting], request, is_by_added=True)
        case "ended":
            return _ended(tables, where, request)
        case _:
            assert_never(request.name)


def _added(records: Reversible[Record], after: Key | None) -> Iterator[tuple[Candidate, Record]]:
    """Records in the order of adding, from the last one on."""
    for record in reversed(records):
        if after is None or record.seq < after[1]:
            yield Candidate(0, record.seq, record.added), record


def _sorted(records: Iterable[Record], request: ReadRequest) -> _Found:
    """Few records, in any order."""
    found = {Candidate(0, record.seq, record.added): record for record in records}
    return [(each, found[each]) for each in in_order(request.name, list(found), request.after, request.size)]


def _queued(queues: list[OrderedQueue], request: ReadRequest, *, is_by_added: bool = False) -> _Found:
    moment, seq = request.after or _FIRST
    records: dict[int, Record] = {}
    for queue in queues:
        records |= {key: queue.members[key] for key in queue.after(moment, seq, request.size)}
    found: list[tuple[Candidate, Record]] = []
    for key in sorted(records)[: request.size]:
        record = records[key]
        time = record.added if is_by_added else key >> SEQ_BITS
        found.append((Candidate(key >> SEQ_BITS, record.seq, time), record))
    return found


def _ended(tables: MemoryTables, where: Mapping[str, str], request: ReadRequest) -> _Found:
    lists = [tasks.before(request.after) for tasks in tables.ended.in_state(where["state"], source_of(where))]
    last_first = merge(*lists, key=lambda record: (record.history.ended or 0, record.seq), reverse=True)
    found: list[tuple[Candidate, Record]] = []
    for record in islice(last_first, request.size):
        ended = record.history.ended or 0
        found.append((Candidate(ended, record.seq, ended), record))
    return found


def position(tables: MemoryTables, uuid: str, now: float) -> Position | None:
    """None: it is not pending."""
    record = tables.records.get(uuid)
    if record is None or record.state in ENDED or record.history.reason in UNQUEUED_REASONS or uuid in tables.leases:
        return None
    if record.state == "waiting":
        return None
    ahead = sum(queue.before(record.rank, record.seq, MAX_AHEAD) for queue in _queues_before(tables, record))
    running = tables.count_running(record.source)
    return Position(blockers(tables.limits.snapshot(record), record, running, now), min(ahead, MAX_AHEAD))


def _queues_before(tables: MemoryTables, record: Record) -> list[OrderedQueue]:
    queues = [each[record.source] for each in (tables.ready, tables.suspects) if record.source in each]
    if record.state == "parked":
        assert record.lane is not None
        queues.append(tables.limits.parked_in(record.lane))
    return queues
