"""Settle: the only end. Ends are written together, everything else where it happens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from onthedot.stores.contract import (
    NO_HISTORY,
    Completed,
    Ended,
    Lease,
    Note,
    Outcome,
    Record,
    Requeued,
    State,
    Verdict,
)
from onthedot.stores.policy_json import policy_of
from onthedot.stores.rules.records import after_requeue, settled_by, with_state
from onthedot.stores.sqlite.journal import write_note
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import Row, is_suspect
from onthedot.stores.sqlite.tables import SqliteTables

_UNTOUCHED = (
    NO_HISTORY.reason,
    NO_HISTORY.retries,
    NO_HISTORY.crashes,
    NO_HISTORY.earlier,
    int(NO_HISTORY.cancel_requested),
)
_End = tuple[Row, State, Lease, int | None, int, bytes | None, bytes | None, int | None]


class SettleBatch:
    """The outcomes of one call."""

    def __init__(self, tables: SqliteTables) -> None:
        self._tables = tables
        self._claims: dict[int, tuple[str, int]] = {}  # fence → session, at
        self._left: defaultdict[int, int] = defaultdict(int)
        self._let_go: list[int] = []
        self._ends: list[_End] = []

    def run(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        """Up to one that adds tasks: these must find held what comes after it."""
        verdicts: list[Verdict] = []
        for end, outcome in enumerate(outcomes, 1):
            if outcome.effects is not None or end == len(outcomes):
                verdicts += self._run(outcomes[len(verdicts) : end])
        return verdicts

    def _run(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        """What was claimed here is known: only whether it is still held, and untouched, is looked up."""
        pop = self._tables.recent_claims.pop
        mine = [pop(outcome.lease.uuid, None) for outcome in outcomes]
        back = self._end_leases(outcomes, mine)
        verdicts: list[Verdict] = []
        for outcome, known in zip(outcomes, mine, strict=True):
            if known is not None and known[0][7] in back:
                self._let_go_of(known[0], known[1])
                self._settle(outcome, known[0], self._claims[known[1]][1])
                verdicts.append("ok")
                continue
            self.write()  # perhaps it was settled just before
            verdicts.append(self._settle_unknown(outcome))
        self.write()
        return verdicts

    def _end_leases(self, outcomes: Sequence[Outcome], mine: Sequence[tuple[Row, int] | None]) -> set[int]:
        """Whether a lease holds, and its end, in one statement a claim."""
        leased: defaultdict[int, list[int]] = defaultdict(list)
        for outcome, known in zip(outcomes, mine, strict=True):
            lease = outcome.lease
            if known is not None and known[1] == lease.fence and self._session(lease.fence) == lease.session:
                leased[lease.fence].append(known[0][7])
        back: set[int] = set()
        for fence, seqs in leased.items():
            rows = self._tables.db.execute(SQL["end_leases"], (fence, msgspec.json.encode(seqs).decode()))
            back.update(seq for (seq,) in rows.fetchall())
        return back

    def _session(self, fence: int) -> str | None:
        claim = self._claims.get(fence) or self._claim(fence)
        return None if claim is None else claim[0]

    def _leased(self, uuid: str) -> Row | None:
        row: Row | None = self._tables.db.execute(SQL["leased_task"], (self._tables.app, uuid)).fetchone()
        return row

    def _claim(self, fence: int) -> tuple[str, int] | None:
        claim: tuple[str, int] | None = self._tables.db.execute(SQL["claim"], (fence,)).fetchone()
        if claim is not None:
            self._claims[fence] = claim
        return claim

    def _settle_unknown(self, outcome: Outcome) -> Verdict:
        """A chore, or what was touched or taken away since the claim, or claimed by another process of this file."""
        lease, row = outcome.lease, self._leased(outcome.lease.uuid)
        if row is None:
            return "lost"
        fence, chore = row[24], row[25]
        if fence is None or fence != lease.fence or self._session(fence) != lease.session:
            before = (row[15], row[16]) if row[10] is not None else None
            return "repeat" if before == (lease.fence, lease.session) else "lost"
        self.release(row, fence, chore=chore)
        self._settle(outcome, row, row[17] if chore else self._claims[fence][1], chore=chore)
        return "ok"

    def _settle(self, outcome: Outcome, row: Row, started: int | None, *, chore: int = 0) -> None:
        lease, tables = outcome.lease, self._tables
        match outcome:
            case Completed(_, result, keep, _, keep_result):
                error = row[21] if row[10] is not None else None
                self._ends.append((row, "succeeded", lease, started, keep, result, error, keep_result))
            case Ended(_, state, error, keep):
                self._ends.append((row, state, lease, started, keep, None, error, None))
            case Requeued():
                self.write()
                self._again(outcome, tables.record(row), started, chore=chore)
        if row[4] is not None or tables.limits.declared or is_suspect(row):
            record = tables.record(row)
            if record.is_suspect and not chore:
                tables.db.execute(SQL["fewer_suspects"], (tables.app, lease.session))
            tables.release_capacity(record)
        if outcome.effects is not None:
            self.write()
            tables.add(outcome.effects.tasks)

    def release(self, row: Row, fence: int, *, chore: int) -> None:
        """The claim holds it no more; it is nowhere until it enters, waits to end, or ends."""
        self._let_go.append(row[7])
        self._let_go_of(row, fence, chore=chore)

    def _let_go_of(self, row: Row, fence: int, *, chore: int = 0) -> None:
        tables = self._tables
        self._left[fence] += 1
        tables.counts[row[1], row[9] if chore else "running"] -= 1
        if row[4] is not None and not chore:
            tables.limits.lane(row[4]).running -= 1

    def _again(self, outcome: Requeued, record: Record, started: int | None, *, chore: int) -> None:
        tables, history, lease = self._tables, record.history, outcome.lease
        if chore and history.reason != "lifted":  # it must end, whoever does it
            tables.queue_chore(with_state(record, record.state, settled_by(history, lease)))
            return
        if outcome.error:
            write_note(tables, record.seq, Note(lease, "error", str(record.attempt), outcome.error))
        since = history.started if outcome.after is None else started
        tables.requeue(record, after_requeue(history, lease, outcome.counted, since, outcome.error), outcome.after)

    def write(self) -> None:
        """What has gathered, in a few statements."""
        if not self._left:
            return
        db = self._tables.db
        if self._let_go:
            db.execute(SQL["release"], (msgspec.json.encode(self._let_go).decode(),))
        db.executemany(SQL["reduce_claim"], [(number, fence) for fence, number in self._left.items()])
        db.executemany(SQL["drop_claim"], [(fence,) for fence in self._left])
        self._write_ends()
        for gathered in (self._let_go, self._left, self._ends):
            gathered.clear()

    def _write_ends(self) -> None:
        """From rows, since most tasks come by here and need no record for it."""
        tables, at = self._tables, int(self._tables.now)
        saves: list[Row] = []
        plain: defaultdict[tuple[int, str, int | None, int], list[int]] = defaultdict(list)
        gone: list[Row] = []
        kept: defaultdict[tuple[str, int], list[int]] = defaultdict(list)  # what, for how long → seqs
        counts, moves, told = tables.counts, tables.moves, tables.told.ended
        for row, state, lease, started, keep, result, error, keep_result in self._ends:
            policy, seq, until = policy_of(row[3]), row[7], None
            if row[5] is not None and policy.unique_for is None:
                tables.db.execute(SQL["free_key"], (row[1], row[5], row[0]))
            if policy.reply_to is not None:
                told.setdefault(policy.reply_to, []).append(row[0])
            if keep <= 0:
                moves["gone"].append((row[0], tables.name_of(row[1]), state))
                gone.append((seq,))
                continue
            if result and keep_result is not None:
                until = at + min(keep, keep_result)
                if keep_result < keep:
                    kept["result", keep_result].append(seq)
            kept["task", keep].append(seq)
            moves[state].append(seq)
            counts[row[1], state] += 1
            if row[10] is None and not result and error is None:  # at the first try, and without a result
                plain[lease.fence, lease.session, started, keep].append(seq)
                continue
            history, hops = (row[10:15], row[23]) if row[10] is not None else (_UNTOUCHED, 0)
            end = (lease.fence, lease.session, started, at, at + keep, result, error, hops, until, seq)
            saves.append((row[6], state, *history, *end))
        for (fence, session, started, keep), seqs in plain.items():
            shared = (fence, session, started, at, at + keep)
            tables.db.execute(SQL["save_plain_ends"], (*shared, msgspec.json.encode(seqs).decode()))
        tables.db.executemany(SQL["save_history"], saves)
        tables.delete(gone)
        for (what, keep), seqs in kept.items():
            row = (tables.app, what, at + keep, at, msgspec.json.encode(seqs).decode())
            tables.db.execute(SQL["retain"], row)
