"""The tables around the tasks of a memory store: sessions, unique keys, notes, schedules and results."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush

from onthedot.stores.contract import RECENT_MS, Note, NoteKind, Record, Schedule
from onthedot.stores.memory.event_tables import MemoryEventTables
from onthedot.stores.memory.series import MemorySeries
from onthedot.stores.rules.notifications import Notifications
from onthedot.stores.rules.task_tables import SessionEntry, UniqueKey

_MAX_DEAD = 10_000  # how many dead names are remembered


class MemorySideTables:
    """Verbs of `TaskTables` that touch no task. The store sets `now` at the start of a call."""

    def __init__(self) -> None:
        self.now: float = 0
        self.process: str = ""  # there is one only
        self.notifications: Notifications = Notifications()
        self.events: MemoryEventTables = MemoryEventTables()
        self.series: MemorySeries = MemorySeries()
        self._sessions: dict[str, SessionEntry] = {}
        self._dead: OrderedDict[str, None] = OrderedDict()
        self._first_death: float | None = None  # kept, since every turn reads it
        self._keys: dict[tuple[str, str], UniqueKey] = {}
        self._key_ends: list[tuple[int, tuple[str, str]]] = []  # of keys that are held for a time
        self._journals: dict[int, dict[tuple[str, str], tuple[int, Note]]] = {}  # by seq
        self._note_number = 0
        self._schedules: dict[str, Schedule] = {}
        self._recent: dict[str, int] = {}  # uuids of tasks that ended with keep=0, and until when they are known

    # -- sessions

    def find_session(self, name: str) -> SessionEntry | None:
        return self._sessions.get(name)

    def save_session(self, session: SessionEntry, *, joined: bool = False) -> None:  # noqa: ARG002 - no other process
        self._sessions[session.name] = session
        self._find_first_death()

    def save_claim(self, session: SessionEntry) -> None:
        pass  # the entry itself is stored

    def drop_session(self, name: str) -> None:
        self._sessions.pop(name, None)
        if self.events.leave_groups(name):
            self.notifications.events = True  # its buckets are free
        self._find_first_death()

    def is_dead(self, name: str) -> bool:
        return name in self._dead

    def mark_dead(self, name: str) -> None:
        self._dead[name] = None
        if len(self._dead) > _MAX_DEAD:
            self._dead.popitem(last=False)

    def overdue_sessions(self) -> Sequence[str]:
        if self._first_death is None or self._first_death > self.now:
            return ()
        return [session.name for session in self._sessions.values() if session.until <= self.now]

    def _find_first_death(self) -> None:
        self._first_death = min((session.until for session in self._sessions.values()), default=None)

    def workers(self) -> list[str]:
        return [name for name, session in self._sessions.items() if session.role == "worker"]

    def infos(self, now: float) -> Mapping[str, bytes]:
        """Of live workers; a session that is overdue is left out before it is reaped, too."""
        live = [session for session in self._sessions.values() if session.until > now]
        return {session.name: session.info for session in live if session.role == "worker"}

    # -- unique keys

    def find_key(self, source: str, unique: str) -> UniqueKey | None:
        return self._keys.get((source, unique))

    def set_key(self, source: str, unique: str, key: UniqueKey) -> None:
        self._keys[source, unique] = key
        if key.until is not None:
            heappush(self._key_ends, (key.until, (source, unique)))

    def free_key(self, source: str, unique: str, uuid: str) -> None:
        key = self._keys.get((source, unique))
        if key is not None and key.uuid == uuid:
            del self._keys[source, unique]

    def drop_expired_keys(self) -> None:
        while self._key_ends and self._key_ends[0][0] <= self.now:
            until, name = heappop(self._key_ends)
            key = self._keys.get(name)
            if key is not None and key.until == until:
                del self._keys[name]

    # -- recent uuids

    def is_recent(self, uuid: str) -> bool:
        return self._recent.get(uuid, 0) > self.now

    def remember(self, record: Record) -> None:
        until = record.added + RECENT_MS
        if until > self.now:
            self._recent[record.uuid] = until

    def drop_recent(self) -> None:
        """In order of their ends: one that is blocked by another is dropped at most RECENT_MS later."""
        while self._recent:
            uuid, until = next(iter(self._recent.items()))
            if until > self.now:
                return
            del self._recent[uuid]

    # -- notes

    def has_note(self, seq: int, note: Note) -> bool:
        return (note.kind, note.name) in self._journals.get(seq, ())

    def drop_note(self, seq: int, note: Note) -> None:
        del self._journals[seq][note.kind, note.name]

    def append_note(self, seq: int, note: Note) -> None:
        self._note_number += 1
        self._journals.setdefault(seq, {})[note.kind, note.name] = (self._note_number, note)

    def drop_journal(self, seq: int) -> None:
        self._journals.pop(seq, None)

    def read_notes(self, seq: int, after: int, limit: int, kind: NoteKind | None) -> Sequence[tuple[int, Note]]:
        entries = self._journals.get(seq, {}).values()
        return [entry for entry in entries if entry[0] > after and kind in (None, entry[1].kind)][:limit]

    # -- schedules

    def find_schedule(self, name: str) -> Schedule | None:
        return self._schedules.get(name)

    def save_schedule(self, schedule: Schedule) -> None:
        self._schedules[schedule.name] = schedule

    def delete_schedules(self, names: Sequence[str]) -> None:
        for name in names:
            self._schedules.pop(name, None)

    def all_schedules(self) -> list[Schedule]:
        return list(self._schedules.values())

    def due_schedules(self) -> list[Schedule]:
        return [schedule for next_at, schedule in self._active_schedules() if next_at <= self.now]

    def next_window(self) -> float | None:
        return min((next_at for next_at, _ in self._active_schedules() if next_at > self.now), default=None)

    def _active_schedules(self) -> Iterator[tuple[int, Schedule]]:
        for schedule in self._schedules.values():
            if schedule.next_at is not None and not schedule.paused:
                yield schedule.next_at, schedule


class ResultTable:
    """Results that are dropped before their records."""

    def __init__(self) -> None:
        self._by_uuid: dict[str, tuple[bytes, int]] = {}
        self._queues: dict[int, deque[str]] = {}  # by keeping time: each queue is in order of time

    def put(self, uuid: str, result: bytes, keep: int, now: float) -> None:
        self._by_uuid[uuid] = (result, int(now) + keep)
        self._queues.setdefault(keep, deque()).append(uuid)

    def get(self, uuid: str, now: float) -> bytes | None:
        if uuid not in self._by_uuid:
            return None
        result, until = self._by_uuid[uuid]
        return result if until > now else None

    def drop(self, uuid: str) -> None:
        self._by_uuid.pop(uuid, None)

    def purge(self, limit: int, now: float) -> None:
        for queue in self._queues.values():
            for _ in range(min(limit, len(queue))):
                _, until = self._by_uuid.get(queue[0], (b"", 0))
                if until > now:
                    break
                self.drop(queue.popleft())
