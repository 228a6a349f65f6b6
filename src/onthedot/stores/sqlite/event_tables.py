"""The events of an SQLite store: outbox, log, groups, arrivals and resume handles."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from heapq import merge
from itertools import islice
from typing import Literal

from msgspec.structs import astuple

from onthedot.stores.contract import MAX_READ_BYTES, RELAYS, Arrival, HandleRecord, HandleStatus, NewEvent, OutboxEvent
from onthedot.stores.rules.event_tables import MAX_SET_ASIDE, PendingPage, take_bytes
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import from_handle, json_list, to_event, to_handle

MIN_PAGE = 10  # seqs of a topic and bucket that are read at once
MAX_SCAN = 50_000  # positions that one read of a bucket passes over


class SqliteEventTables:
    """`EventTables` on a connection, inside one transaction."""

    def __init__(self, db: sqlite3.Connection, app: int) -> None:
        self.db = db
        self._run = db.execute
        self._app = app
        self.now: float = 0.0  # of the call
        self.seq: int = 0  # the last one that was given out
        self.joins: int = 0  # of groups, in this transaction

    # -- the outbox

    def insert(self, events: Sequence[NewEvent]) -> list[bool]:
        before = self.seq
        rows = [(seq, self._app, *astuple(event)) for seq, event in enumerate(events, before + 1)]
        inserted = self.db.executemany(SQL["insert_event"], rows).rowcount
        self.seq += len(rows)
        if inserted == len(rows):
            return [True] * inserted
        new = {event_id for (event_id,) in self._run(SQL["event_ids_after"], (before,))}
        fresh: list[bool] = []
        for event in events:
            fresh.append(event.id in new)
            new.discard(event.id)
        return fresh

    def mark_sent(self, seqs: Sequence[int], *, to_log: bool) -> None:
        unsent: dict[int, int] = dict(self._run(SQL["unsent_buckets"], (json_list(list(seqs)), self._app)).fetchall())
        buckets = {seq: unsent[seq] for seq in seqs if seq in unsent}  # in this order, each once
        now = int(self.now)
        self._free_keys(list(buckets))
        positions: Mapping[int, int] = self._append_to_log(buckets) if to_log else {}
        self.db.executemany(SQL["mark_sent"], [(now, positions.get(seq), seq) for seq in buckets])
        self._retain("event", list(buckets))

    def _append_to_log(self, buckets: Mapping[int, int]) -> dict[int, int]:
        """The positions of these seqs."""
        ends = self._positions(RELAYS)
        positions: dict[int, int] = {}
        for seq, bucket in buckets.items():
            positions[seq] = ends[bucket] = ends.get(bucket, 0) + 1
        for bucket in set(buckets.values()):
            self.commit(RELAYS, bucket, ends[bucket])
        return positions

    def mark_failed(self, refused: Mapping[int, str]) -> None:
        self.db.executemany(SQL["mark_failed"], [(error, seq, self._app) for seq, error in refused.items()])

    def pending(
        self, buckets: Collection[int], in_flight: Collection[int], skip_topics: Collection[str], limit: int
    ) -> PendingPage:
        """By topic and bucket, so that a long queue of another relay or of a skipped topic is not read."""
        pairs = self._run(SQL["unsent_pairs"], {"app": self._app}).fetchall()
        wanted = [(topic, bucket) for topic, bucket in pairs if bucket in buckets and topic not in skip_topics]
        page = MIN_PAGE + limit // max(1, len(wanted))  # most of what is read is taken
        behind: list[int] = []
        queues = [self._unsent(topic, bucket, page, behind) for topic, bucket in wanted]
        held = set(in_flight)
        seqs = list(islice((seq for seq in merge(*queues) if seq not in held), limit))
        if behind:
            self._run(SQL["set_aside"], (json_list(behind),))
        taken = self._take_rows("events_by_seq", (json_list(seqs),), MAX_READ_BYTES)
        return PendingPage(taken.events, taken.more or len(seqs) == limit or len(behind) >= MAX_SET_ASIDE)

    def _take_rows(self, query: str, parameters: Sequence[object] | Mapping[str, object], most: int) -> PendingPage:
        """Row by row: what is beyond so many bytes is not read from the file."""
        with closing(self._run(SQL[query], parameters)) as rows:
            return take_bytes(map(to_event, rows), most)

    def _unsent(self, topic: str, bucket: int, page: int, behind: list[int]) -> Iterator[int]:
        """behind: gets those whose key has a failed event."""
        after = 0
        while len(behind) < MAX_SET_ASIDE:
            rows = self._run(SQL["unsent"], (self._app, topic, bucket, after, page)).fetchall()
            for after, is_behind in rows:
                if is_behind:
                    behind.append(after)
                else:
                    yield after
            if len(rows) < page:
                return

    def _free_keys(self, seqs: Sequence[int]) -> None:
        """Of the failed ones among these, which are to have another status. Others of the key may have failed, too:
        then a relay sets its events aside again."""
        keys = self._run(SQL["keys_of_failed"], (json_list(seqs),)).fetchall()
        self.db.executemany(SQL["free_key_of_events"], keys)

    def amend(self, ids: Sequence[str], action: Literal["retry", "discard"], reason: str) -> list[str]:
        failed: dict[str, int] = {}
        for event_id in ids:
            for (seq,) in self._run(SQL["failed_seq"], (self._app, event_id)):
                failed[event_id] = seq
        self._free_keys(list(failed.values()))
        if action == "retry":
            self.db.executemany(SQL["retry_event"], [(seq,) for seq in failed.values()])
        else:
            self.db.executemany(SQL["discard_event"], [(int(self.now), reason or None, seq) for seq in failed.values()])
            self._retain("event", list(failed.values()))
        return list(failed)

    # -- groups

    def join(self, group: str, session: str) -> Sequence[str]:
        members = [name for (name,) in self._run(SQL["members_of_group"], (self._app, group))]
        if session not in members:
            self._run(SQL["join_group"], (self._app, group, session))
            self.joins += 1
            members.append(session)
        return members

    def leave_groups(self, session: str) -> bool:
        """Whether it was in one."""
        if not self._run(SQL["leave_groups"], (self._app, session)).rowcount:
            return False
        self._run(SQL["free_buckets"], (self._app, session))
        return True

    def owners(self, group: str) -> Mapping[int, str]:
        return dict(self._run(SQL["owners"], (self._app, group)).fetchall())

    def set_owner(self, group: str, bucket: int, session: str | None) -> None:
        self._run(SQL["set_owner"], (self._app, group, bucket, session))

    def committed(self, group: str) -> Mapping[int, int]:
        return self._positions(group)

    def _positions(self, group: str) -> dict[int, int]:
        return dict(self._run(SQL["positions"], (self._app, group)).fetchall())

    def commit(self, group: str, bucket: int, position: int) -> None:
        self._run(SQL["set_position"], (self._app, group, bucket, position))

    def read_log(
        self, bucket: int, topics: Collection[str], after: int, limit: int, most: int
    ) -> tuple[list[OutboxEvent], int]:
        """A reader of few topics gets over a long log in several steps."""
        (first,) = self._run(SQL["next_position"], (self._app, bucket, after)).fetchone()
        end = max(after, self._positions(RELAYS).get(bucket, 0))
        if first is None:
            return [], end
        until = first + MAX_SCAN
        wanted = {"app": self._app, "bucket": bucket, "after": after, "until": until, "limit": limit}
        found, is_cut = self._take_rows("read_log", {**wanted, "topics": json_list(list(topics))}, most)
        if is_cut or len(found) == limit:
            assert found[-1].position is not None
            return found, found[-1].position
        return found, min(end, until - 1)

    # -- resume handles

    def insert_arrivals(self, arrivals: Sequence[Arrival]) -> None:
        now = int(self.now)
        rows = [(self._app, each.correlation_id, each.event_id, each.type, each.event, now) for each in arrivals]
        self._retain("arrival", [number for row in rows for (number,) in self._run(SQL["insert_arrival"], row)])

    def count_arrivals(self, correlation_id: str) -> Mapping[str, int]:
        return dict(self._run(SQL["count_arrivals"], (self._app, correlation_id)).fetchall())

    def handles_of(self, correlation_id: str) -> list[HandleRecord]:
        return [to_handle(row) for row in self._run(SQL["handles_of"], (self._app, correlation_id)).fetchall()]

    def find_handle(self, handle_id: str) -> HandleRecord | None:
        row = self._run(SQL["handle"], (self._app, handle_id)).fetchone()
        return None if row is None else to_handle(row)

    def save_handle(self, handle: HandleRecord) -> None:
        self._run(SQL["save_handle"], (self._app, *from_handle(handle)))

    def set_status(self, handle_id: str, status: HandleStatus, ended: int) -> None:
        self._run(SQL["set_handle_status"], (status, ended, self._app, handle_id))

    # -- retention: a row per call shows what may be dropped

    def _retain(self, what: Literal["event", "arrival"], numbers: Sequence[int]) -> None:
        if numbers:
            now = int(self.now)
            self._run(SQL["retain"], (self._app, what, now, now, json_list(numbers), None, None))
