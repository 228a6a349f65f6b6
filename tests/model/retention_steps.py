"""Steps of the state machine about retention: what a purge drops, and what it keeps for a flow that lives."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.model.rows import Row
from tests.model.steps import Steps
from tests.model.strategies import LEASES

DAY = 86_400_000  # ms after which a member that is kept for its flow is looked at again
ALL = 1000  # more tasks than an example has


class RetentionSteps(Steps):
    def __init__(self) -> None:
        super().__init__()
        self.put_off: dict[str, int | None] = {}  # members that a purge has kept → their keep_until since then

    @rule(limit=st.sampled_from([1, 3, ALL]), most=st.sampled_from([0, 2, 100, 100]))
    def purge(self, limit: int, most: int) -> None:
        """Stores may choose the order of tasks that ended in the same millisecond, and of members that were kept."""
        rows = self.naive.rows
        kept = [uuid for uuid, row in rows.items() if not row.live and self.naive.is_kept_for_flow(row)]
        is_simple = not kept and not any(map(self.is_put_off, rows.values()))
        dropped = self.wait(self.store.purge(limit, most))
        gone = [uuid for uuid in rows if self.wait(self.store.get([uuid])) == [None]]
        assert len(gone) == dropped <= limit
        assert not set(gone) & set(kept), "members of a flow that lives are dropped"
        if is_simple:
            doomed = self.naive.doomed(limit, most)
            assert sorted(map(self.end, gone)) == sorted(self.end(row.record.uuid) for row in doomed)
        elif limit == ALL:
            self.check_all_dropped(gone, kept, most)
        for uuid in gone:
            self.naive.drop(uuid)
        for uuid in kept:
            self.keep_member(uuid, is_looked_at=limit == ALL)

    @rule(most=st.sampled_from([0, 2, 100]))
    def purge_a_day_later(self, most: int) -> None:
        """The sessions have sent heartbeats all day."""
        self.clock.advance(DAY)
        for session in self.sessions:
            theirs, ours = self.call("heartbeat", session, b"", LEASES[0])
            assert theirs.alive == ours.alive
        self.purge(ALL, most)

    def check_all_dropped(self, gone: Collection[str], kept: Collection[str], most: int) -> None:
        """Tasks past their time, then the oldest beyond `most`. Members that were put off may be dropped later."""
        ended = [row for row in self.naive.rows.values() if not row.live]
        free = [row for row in ended if row.record.uuid not in kept]
        over = [row for row in free if (row.record.history.keep_until or 0) <= self.clock.now()]
        assert {row.record.uuid for row in over} <= set(gone)
        excess = max(0, len(ended) - len(over) - most)
        idle = [row for row in free if row not in over]
        fresh = [row for row in idle if not self.is_put_off(row)]
        assert min(excess, len(fresh)) <= len(gone) - len(over) <= excess
        if len(fresh) == len(idle):
            moments = sorted(self.end(row.record.uuid) for row in idle)[:excess]
            assert sorted(self.end(row.record.uuid) for row in idle if row.record.uuid in gone) == moments

    def is_put_off(self, row: Row) -> bool:
        uuid = row.record.uuid
        return not row.live and uuid in self.put_off and self.put_off[uuid] == row.record.history.keep_until

    def keep_member(self, uuid: str, *, is_looked_at: bool) -> None:
        """A store may look at it before its time, too."""
        row = self.naive.rows[uuid]
        (record,) = self.wait(self.store.get([uuid]))
        assert record is not None
        before = row.record.history.keep_until
        after = record.history.keep_until
        next_look = int(self.clock.now()) + DAY
        assert after in (before, next_look)
        assert after == next_look or (before or 0) > self.clock.now() or not is_looked_at
        if after != before:
            row.change(keep_until=after)
            self.put_off[uuid] = after

    def end(self, uuid: str) -> tuple[bool, int]:
        history = self.naive.rows[uuid].record.history
        assert history.keep_until is not None
        assert history.ended is not None
        over = history.keep_until <= self.clock.now()
        return not over, history.keep_until if over else history.ended
