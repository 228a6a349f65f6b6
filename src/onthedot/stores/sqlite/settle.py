"""Settle, set-based: outcomes are gathered and written in a few statements.

Every task passes here, so ends are written from the rows of the claim, without records. The decisions about a requeue
and about released capacity are shared (`rules.settle`, `rules.lanes`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal, assert_never

from msgspec import Struct
from msgspec.structs import astuple

from onthedot.stores.contract import (
    NO_HISTORY,
    RECENT_MS,
    Completed,
    Effects,
    Ended,
    Lease,
    NewEvent,
    NewTask,
    Outcome,
    Requeued,
    State,
    Suspended,
    Verdict,
)
from onthedot.stores.rules.insert import add
from onthedot.stores.rules.lanes import release_capacity
from onthedot.stores.rules.outbox import publish
from onthedot.stores.rules.settle import late_verdict, requeue_outcome, suspend
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import ClaimRow, Row, TaskRow, is_suspect, json_list, row_links, row_policy

if TYPE_CHECKING:
    from onthedot.stores.sqlite.tables import SqliteTables

_UNTOUCHED = (
    NO_HISTORY.reason,
    NO_HISTORY.retries,
    NO_HISTORY.crashes,
    NO_HISTORY.earlier,
    int(NO_HISTORY.cancel_requested),
)
_Known = tuple[TaskRow, int]  # a task that this process has claimed, as it was then; its fence


class _End(Struct, frozen=True, gc=False):
    row: TaskRow
    state: State
    lease: Lease
    started: int | None
    keep: int  # ms
    result: bytes | None
    error: bytes | None
    keep_result: int | None  # ms

    @property
    def is_plain(self) -> bool:
        """Whether it is the end of a first attempt, without a result."""
        return self.row.reason is None and not self.result and self.error is None


class _PlainEnd(Struct, frozen=True, gc=False):
    """The values that plain ends of one call share, and the parameters of a statement."""

    fence: int
    session: str
    started: int | None
    ended: int
    keep_until: int


class _Retention(Struct, frozen=True, gc=False):
    """A deadline that tasks share. source and state: of tasks, None for results."""

    kind: Literal["task", "result"]
    keep: int
    source: int | None = None
    state: State | None = None


class SettleBatch:
    """The outcomes of one call."""

    def __init__(self, tables: SqliteTables) -> None:
        self._tables = tables
        self._claims: dict[int, ClaimRow] = {}  # by fence
        self._settled: defaultdict[int, int] = defaultdict(int)  # by fence: how many
        self._released: list[int] = []
        self._gathered: set[str] = set()  # uuids of tasks that are not written yet
        self._ends: list[_End] = []
        self._spawned: list[NewTask] = []
        self._events: list[NewEvent] = []

    def run(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        """Up to an outcome whose new tasks may depend on a following task: they must find it leased."""
        verdicts: list[Verdict] = []
        settled: set[str] = set()
        for end, outcome in enumerate(outcomes, 1):
            if outcome.effects is not None and not settled:
                settled = {each.lease.uuid for each in outcomes}
            if end == len(outcomes) or _may_depend(outcome.effects, settled):
                verdicts += self._run(outcomes[len(verdicts) : end])
        return verdicts

    def _run(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        """The rows of this process's claims are known; the file decides whether they are still leased and unchanged."""
        pop = self._tables.recent_claims.pop
        known = [pop(outcome.lease.uuid, None) for outcome in outcomes]
        unchanged = self._end_leases(outcomes, known)
        verdicts: list[Verdict] = []
        for outcome, claimed in zip(outcomes, known, strict=True):
            if claimed is not None:
                row, fence = claimed
                if row.seq in unchanged:
                    self._count_released(row, fence)
                    self._settle(outcome, row, self._claims[fence].at)
                    verdicts.append("ok")
                    continue
            verdicts.append(self._settle_unknown(outcome))
        self.write()
        add(self._tables, self._spawned)
        self._spawned.clear()
        if self._events:
            publish(self._tables, self._events)
            self._events.clear()
        return verdicts

    def _end_leases(self, outcomes: Sequence[Outcome], known: Sequence[_Known | None]) -> set[int]:
        """Check and end leases in one statement per claim; return the seqs of those that held."""
        seqs: defaultdict[int, list[int]] = defaultdict(list)
        for outcome, claimed in zip(outcomes, known, strict=True):
            if claimed is None:
                continue
            row, fence = claimed
            lease = outcome.lease
            if fence == lease.fence and self._session(fence) == lease.session:
                seqs[fence].append(row.seq)
        held: set[int] = set()
        for fence, some in seqs.items():
            rows = self._tables.db.execute(SQL["end_leases"], (fence, json_list(some)))
            held.update(seq for (seq,) in rows.fetchall())
        return held

    def _session(self, fence: int) -> str | None:
        claim = self._claims.get(fence)
        if claim is None:
            row = self._tables.db.execute(SQL["claim"], (fence,)).fetchone()
            if row is None:
                return None
            claim = self._claims[fence] = ClaimRow._make(row)
        return claim.session

    def _settle_unknown(self, outcome: Outcome) -> Verdict:
        """A chore; or its lease is over; or its history was changed since; or another process has claimed it."""
        lease = outcome.lease
        if lease.uuid in self._gathered:  # it was settled just before
            self.write()
        found = self._tables.db.execute(SQL["leased_task"], (self._tables.app, lease.uuid)).fetchone()
        if found is None:
            return "lost"
        *columns, fence, chore = found
        row = TaskRow(*columns)
        if fence is None or fence != lease.fence or self._session(fence) != lease.session:
            return "lost" if row.reason is None else late_verdict(row.settled_fence, row.session, lease)
        self._released.append(row.seq)
        self._count_released(row, fence, chore=chore)
        self._settle(outcome, row, row.started if chore else self._claims[fence].at, chore=chore)
        return "ok"

    def _count_released(self, row: TaskRow, fence: int, *, chore: bool = False) -> None:
        tables = self._tables
        self._settled[fence] += 1
        self._gathered.add(row.uuid)
        tables.counts[row.source, row.state if chore else "running"] -= 1
        if row.lane is not None and not chore:
            tables.limits.lane(row.lane).running -= 1

    def _settle(self, outcome: Outcome, row: TaskRow, started: int | None, *, chore: bool = False) -> None:
        lease = outcome.lease
        tables = self._tables
        match outcome:
            case Completed():
                error = row.error if row.reason is not None else None
                keep_result = outcome.keep_result
                end = _End(row, "succeeded", lease, started, outcome.keep, outcome.result, error, keep_result)
                self._ends.append(end)
            case Ended():
                end = _End(row, outcome.state, lease, started, outcome.keep, None, outcome.error, None)
                self._ends.append(end)
            case Requeued():
                self.write()
                requeue_outcome(tables, outcome, tables.record(row), started, chore=chore)
            case Suspended():
                self.write()
                suspend(tables, outcome, tables.record(row), started, chore=chore)
            case _:
                assert_never(outcome)
        if row.lane is not None or tables.limits.has_limits or is_suspect(row):
            record = tables.record(row)
            if record.is_suspect and not chore:
                tables.db.execute(SQL["fewer_suspects"], (tables.app, lease.session))
            release_capacity(tables, record)
        if outcome.effects is not None:
            self._spawned += outcome.effects.tasks
            self._events += outcome.effects.events

    def write(self) -> None:
        """Write what has gathered."""
        if not self._settled:
            return
        db = self._tables.db
        if self._released:
            db.execute(SQL["release"], (json_list(self._released),))
        db.executemany(SQL["reduce_claim"], [(number, fence) for fence, number in self._settled.items()])
        db.executemany(SQL["drop_claim"], [(fence,) for fence in self._settled])
        self._write_ends()
        self._released.clear()
        self._settled.clear()
        self._gathered.clear()
        self._ends.clear()

    def _write_ends(self) -> None:
        tables = self._tables
        now = int(tables.now)
        retained: list[_End] = []
        deleted: list[_End] = []
        for end in self._ends:
            (retained if end.keep > 0 else deleted).append(end)
            self._release_names(end.row)
        self._save_retained(retained, now)
        self._delete(deleted, now)
        self._count_ends()
        tables.end_subscriptions([end.row.uuid for end in self._ends])
        self._write_deadlines(retained, now)

    def _release_names(self, row: TaskRow) -> None:
        """Its unique key is free, and the one that waits for it is notified."""
        policy = row_policy(row)
        if row.unique is not None and policy.unique_for is None:
            self._tables.db.execute(SQL["free_key"], (row.source, row.unique, row.uuid))
        if policy.reply_to is not None:
            self._tables.notifications.ended.setdefault(policy.reply_to, []).append(row.uuid)

    def _save_retained(self, ends: Sequence[_End], now: int) -> None:
        tables = self._tables
        saves: list[Row] = []
        plain: defaultdict[_PlainEnd, list[int]] = defaultdict(list)
        for end in ends:
            row = end.row
            key = (row.source, end.state)
            tables.transitions[key].append(row.seq)
            tables.counts[key] += 1
            if end.is_plain:
                shared = _PlainEnd(end.lease.fence, end.lease.session, end.started, now, now + end.keep)
                plain[shared].append(row.seq)
            else:
                saves.append(_saved_columns(end, now))
        for shared, seqs in plain.items():
            tables.db.execute(SQL["save_plain_ends"], (*astuple(shared), json_list(seqs)))
        tables.db.executemany(SQL["save_history"], saves)

    def _delete(self, ends: Sequence[_End], now: int) -> None:
        """Tasks that are not retained. A young one is remembered, because its add may be repeated."""
        tables = self._tables
        deleted: list[Row] = []
        recent: list[Row] = []
        for end in ends:
            row = end.row
            tables.transitions[row.source, end.state].append(row.uuid)
            deleted.append((row.seq,))
            remember_until = row.added + RECENT_MS
            if remember_until > now:
                recent.append((tables.app, row.uuid, remember_until))
        tables.delete(deleted)
        tables.db.executemany(SQL["remember"], recent)

    def _write_deadlines(self, ends: Sequence[_End], now: int) -> None:
        tables = self._tables
        deadlines: defaultdict[_Retention, list[int]] = defaultdict(list)
        for end in ends:
            row = end.row
            deadlines[_Retention("task", end.keep, row.source, end.state)].append(row.seq)
            if end.result and end.keep_result is not None and end.keep_result < end.keep:
                deadlines[_Retention("result", end.keep_result)].append(row.seq)
        for shared, seqs in deadlines.items():
            until = now + shared.keep
            columns = (tables.app, shared.kind, until, now, json_list(seqs), shared.source, shared.state)
            tables.db.execute(SQL["retain"], columns)

    def _count_ends(self) -> None:
        """Raise each counter once."""
        ended: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        by_links: defaultdict[tuple[str, bool], list[TaskRow]] = defaultdict(list)  # most share their links
        for end in self._ends:
            if end.row.links is not None:
                by_links[end.row.links, end.state == "succeeded"].append(end.row)
        for (_, succeeded), rows in by_links.items():
            links = row_links(rows[0])
            for name in () if links is None else links.increments:
                ended[name] += len(rows)
                failed[name] += 0 if succeeded else len(rows)
        for name, number in ended.items():
            self._tables.raise_counter(name, number, failed[name])


def _may_depend(effects: Effects | None, settled: Collection[str]) -> bool:
    """Whether new tasks may find one of these tasks: by their uuid, or as the holder of their unique key."""
    return effects is not None and any(new.unique is not None or new.uuid in settled for new in effects.tasks)


def _saved_columns(end: _End, now: int) -> Row:
    """The parameters of `save_history`."""
    row = end.row
    history, moves = _history(row)
    result_until = None
    if end.result and end.keep_result is not None:
        result_until = now + min(end.keep, end.keep_result)
    return (
        row.due,
        end.state,
        *history,
        end.lease.fence,
        end.lease.session,
        end.started,
        now,
        now + end.keep,
        end.result,
        end.error,
        *moves,
        result_until,
        None,  # wait
        None,  # wait_until
        row.seq,
    )


def _history(row: TaskRow) -> tuple[Row, Row]:
    """The columns that an end leaves as they are."""
    if row.reason is None:
        return _UNTOUCHED, (NO_HISTORY.hops, NO_HISTORY.revives)
    return (row.reason, row.retries, row.crashes, row.earlier, row.cancel_requested), (row.hops, row.revives)
