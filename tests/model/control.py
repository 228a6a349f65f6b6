"""Schedules, journal, retention and reads of the naive store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace as replace_bucket

from msgspec.structs import replace

from onthedot.clock.protocol import Clock
from onthedot.stores.contract import (
    MAX_AHEAD,
    Added,
    FireRequest,
    Lease,
    Limit,
    NewTask,
    Note,
    Page,
    Position,
    Record,
    Schedule,
    State,
)
from tests.model.naive_pages import find_page
from tests.model.rows import Limits, Row, SessionRow


class Control:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.rows: dict[str, Row] = {}
        self.limit_rules = Limits(clock, self.rows)
        self.stored_schedules: dict[str, Schedule] = {}
        self.session_rows: dict[str, SessionRow] = {}
        self.counter = 0
        self.fence = 0

    def add(self, tasks: Sequence[NewTask]) -> list[Added]:
        raise NotImplementedError

    def put_schedules(self, schedules: Sequence[Schedule]) -> list[bool]:
        return [self._put(schedule) for schedule in schedules]

    def put_limits(self, limits: Sequence[Limit], replaces: Sequence[Limit] = ()) -> bool:
        if any(old != self.limit_rules.stored(old.name, old.owner) for old in replaces):
            return False
        for limit in limits:
            self.limit_rules.put(limit)
        return True

    def _put(self, new: Schedule) -> bool:
        old = self.stored_schedules.get(new.name)
        if new.rev > 0:
            if old is not None and old.rev == new.rev:
                self.stored_schedules[new.name] = replace(new, rev=old.rev + 1)
                return True
            return False
        if old is None:
            self.stored_schedules[new.name] = replace(new, rev=1)
        elif new.definition_digest == "" or new.definition_digest != old.definition_digest:
            changed = replace(
                old, rule=new.rule, definition_digest=new.definition_digest, next_at=new.next_at, rev=old.rev + 1
            )
            self.stored_schedules[new.name] = changed
        return True

    def fire(self, fires: Sequence[FireRequest]) -> list[bool]:
        return [self._fire(fire) for fire in fires]

    def _fire(self, fire: FireRequest) -> bool:
        old = self.stored_schedules.get(fire.name)
        if old is None or old.rev != fire.rev or old.paused:
            return False
        last_at = old.last_at if fire.last_at is None else fire.last_at
        runs = old.runs + sum(added.fresh for added in self.add(fire.tasks))
        self.stored_schedules[fire.name] = replace(
            old, rev=old.rev + 1, next_at=fire.next_at, last_at=last_at, runs=runs
        )
        return True

    def delete_schedules(self, schedules: Sequence[str]) -> None:
        for name in schedules:
            self.stored_schedules.pop(name, None)

    def due_schedules(self) -> list[Schedule]:
        now = self.clock.now()
        return [
            s for s in self.stored_schedules.values() if not s.paused and s.next_at is not None and s.next_at <= now
        ]

    def note(self, notes: Sequence[Note]) -> list[Lease]:
        lost = []
        for note in notes:
            row = self.rows.get(note.lease.uuid)
            if row is None or not row.under(note.lease):
                lost.append(note.lease)
            else:
                self._write(row, note)
        return lost

    def _write(self, row: Row, note: Note) -> None:
        key = (note.kind, note.name)
        if note.kind == "progress" or key not in row.notes:
            row.notes[key] = (self._count(), note)

    def _count(self) -> int:
        self.counter += 1
        return self.counter

    def doomed(self, limit: int, most: int) -> list[Row]:
        """The rows that a purge drops: first those after their retention time, then the oldest ends."""
        now = self.clock.now()
        ended = [row for row in self.rows.values() if not row.live]
        ended = [row for row in ended if not self.is_kept_for_flow(row)]
        over = [row for row in ended if (row.record.history.keep_until or 0) <= now]
        over.sort(key=lambda row: (row.record.history.keep_until or 0, row.record.seq))
        idle = sorted((row for row in ended if row not in over), key=lambda row: row.end)
        return (over + idle[: max(0, len(idle) - most)])[:limit]

    def purge(self, limit: int, most: int = 1_000_000) -> int:
        doomed = self.doomed(limit, most)
        for row in doomed:
            self.drop(row.record.uuid)
        self.keep_members()
        self.purge_counters()
        return len(doomed)

    def drop(self, uuid: str) -> None:
        raise NotImplementedError

    def is_kept_for_flow(self, row: Row) -> bool:
        raise NotImplementedError

    def keep_members(self) -> None:
        raise NotImplementedError

    def purge_counters(self) -> None:
        raise NotImplementedError

    def get(self, uuids: Sequence[str]) -> list[Record | None]:
        return [self._seen(self.rows[uuid]) if uuid in self.rows else None for uuid in uuids]

    def _seen(self, row: Row) -> Record:
        record = row.seen()
        if row.result_until is None or row.result_until > self.clock.now():
            return record
        return replace(record, history=replace(record.history, result=None))

    def results(self, uuids: Sequence[str]) -> list[bytes | None]:
        seen = [None if record is None or record.state != "succeeded" else record for record in self.get(uuids)]
        return [None if record is None else record.history.result for record in seen]

    def find(self, where: Mapping[str, str], after: str | None, limit: int) -> Page:
        return find_page(self.rows.values(), self.fence, where, after, limit)

    def notes(self, uuid: str, after: int, limit: int, kind: str | None = None) -> list[tuple[int, Note]]:
        notes = self.rows[uuid].notes.values() if uuid in self.rows else ()
        found = [entry for entry in notes if entry[0] > after and kind in (None, entry[1].kind)]
        return sorted(found, key=lambda entry: entry[0])[:limit]

    def tally(self) -> Counter[tuple[str, State]]:
        seen = [row.seen() for row in self.rows.values()]
        return Counter((record.source, record.state) for record in seen)

    def position(self, uuid: str) -> Position | None:
        row = self.rows.get(uuid)
        if row is None or not row.live or row.lease is not None or row.chore is not None or row.lifted:
            return None
        if row.record.state == "waiting":
            return None
        limits = self.limit_rules
        record = row.record
        buckets = {name: replace_bucket(bucket) for name, bucket in limits.buckets.items()}
        running = sum(other.running and other.record.source == record.source for other in self.rows.values())
        holds = limits.blockers(record.source, running, 0, 1)
        if record.lane is not None:
            admitted = [] if record.state == "ready" else limits.in_lane(record.lane, "ready")
            cost = limits.price(record.lane, record.policy.cost)
            cost += sum(other.record.policy.cost for other in admitted)
            holds += limits.blockers(record.lane, limits.running(record.lane), len(admitted), cost)
        limits.buckets = buckets  # reads change nothing
        others = limits.ready([record.source])
        others += limits.in_lane(record.lane, "parked") if record.state == "parked" else []
        return Position(holds, min(MAX_AHEAD, sum(other.place < row.place for other in others)))

    def schedules(self) -> list[Schedule]:
        return list(self.stored_schedules.values())

    def limits(self) -> list[Limit]:
        return list(self.limit_rules.records.values())

    def sessions(self) -> dict[str, bytes]:
        alive = {name: p.info for name, p in self.session_rows.items() if p.until > self.clock.now()}
        return {name: info for name, info in alive.items() if info is not None}
