"""Why a task is not running: from the rules that the claim goes by, and from who is there to claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from onthedot.clock.epoch import from_ms
from onthedot.model.failures import decode_failure
from onthedot.model.limits import rate_text
from onthedot.model.task import TaskState
from onthedot.operations.humanize import plural
from onthedot.operations.sources import read_reason
from onthedot.operations.start_rate import sample, start_rate
from onthedot.operations.workers import WorkerInfo, worker_info
from onthedot.stores.contract import MAX_AHEAD, Blocker, Position, Record, Store
from onthedot.stores.rules.records import CHORE_REASONS, ENDED, expiry

_SHOWN = 5  # holders
_MOST = 1000  # running ones that are looked at
_TRIES = 3
_NO_TELLING = frozenset({"source_paused", "key_paused", "no_worker", "unknown"})  # it takes a person to end it


@dataclass(frozen=True, slots=True)
class Holder:
    """One that holds a task back: a task, and the worker that runs it; or a worker alone."""

    uuid: str | None
    worker: str | None
    where: str = ""  # its host and process
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class ExplanationReason:
    """One thing that keeps a task from running."""

    reason: str
    text: str
    until: datetime | None = None  # when it is gone by itself
    by: tuple[Holder, ...] = ()  # a few of them
    by_count: int = 0  # how many there are


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a task is not running, as ``app.explain(uuid)`` tells it.

    `reason` is a word that stays: ``not_due retry source_paused key_paused no_worker unknown source_limit key_limit
    rate suspect behind`` for one that waits, ``expired cancelling ending`` for one that is about to be ended without
    a run, ``moving`` for one between two stores, ``running dead_worker ended``. `also` has what would hold it back when
    that is gone.
    """

    uuid: str
    source: str
    state: TaskState
    reason: str
    text: str
    until: datetime | None = None
    by: tuple[Holder, ...] = ()
    by_count: int = 0
    ahead: int = 0  # tasks that get their turn before it
    estimated_start: datetime | None = None
    also: tuple[ExplanationReason, ...] = ()


async def explain(store: Store, record: Record, now: float) -> Explanation:
    """now: by the store's clock, as far as one knows it."""
    sessions = await store.sessions()
    workers = {name: worker_info(name, info, 0) for name, info in sessions.items()}
    for _ in range(_TRIES):  # it may begin or end between two looks
        about = _About(store, record, workers, now)
        if (settled := about.not_waiting()) is not None:
            return _told(record, [settled, *about.hands_missing(settled)])
        standing = await store.position(record.uuid)
        if standing is not None:
            return await about.pending(standing)
        (record,) = [each or record for each in await store.get((record.uuid,))]
    return await _About(store, record, workers, now).pending(Position((), 0))


def _told(
    record: Record, reasons: Sequence[ExplanationReason], ahead: int = 0, start: float | None = None
) -> Explanation:
    first, *also = reasons
    return Explanation(
        record.uuid,
        record.source,
        TaskState.READY if record.state == "parked" else TaskState(record.state),
        first.reason,
        first.text,
        first.until,
        first.by,
        first.by_count,
        ahead,
        None if start is None else from_ms(start),
        tuple(also),
    )


class _About:
    """One task, and who lives."""

    def __init__(self, store: Store, record: Record, workers: Mapping[str, WorkerInfo], now: float) -> None:
        self._store = store
        self._record = record
        self._workers = workers
        self._now = now

    # -- it does not wait

    def not_waiting(self) -> ExplanationReason | None:
        record, history = self._record, self._record.history
        if record.state in ENDED:
            failure = decode_failure(history.error) if record.state != "succeeded" else None
            reason = "" if failure is None else ": " + (f"{failure.type}: " if failure.type else "") + failure.message
            return ExplanationReason("ended", f"{record.state} at {_moment(history.ended or 0)}{reason}")
        if record.state == "running":
            return self._running()
        if history.reason == "cancel" or history.cancel_requested:
            return ExplanationReason("cancelling", "somebody wants to cancel it: it is being ended without a run")
        if history.reason == "lifted":
            return ExplanationReason(
                "moving", "it is on its way to another store: `onthedot move`, run again, goes on with it"
            )
        ends = expiry(record)
        if history.reason == "expired" or (ends is not None and ends <= self._now):
            since = "" if ends is None else f" at {_moment(ends)}"
            return ExplanationReason("expired", f"it expired{since}: a worker ends it without a run at its next turn")
        if history.reason == "crashed":
            return ExplanationReason(
                "ending", f"its worker died {history.crashes} times over it: a worker ends it at its next turn"
            )
        if history.reason in CHORE_REASONS:
            return ExplanationReason("ending", f"nobody knows {record.source}: it is being ended without a run")
        return None

    def _running(self) -> ExplanationReason:
        record, history = self._record, self._record.history
        by = self._holders([record])
        since = _moment(history.started or 0)
        if history.session not in self._workers:
            text = f"held by worker {history.session}, which is not alive any more: taken back at a worker's next turn"
            return ExplanationReason("dead_worker", text, by=by, by_count=1)
        where = f"runs on worker {history.session} ({by[0].where}) since {since}"
        if history.cancel_requested:
            return ExplanationReason(
                "cancelling", f"somebody wants to cancel it, and its worker was told; {where}", None, by, 1
            )
        return ExplanationReason("running", where, None, by, 1)

    def hands_missing(self, first: ExplanationReason) -> list[ExplanationReason]:
        """What a worker is to do needs one."""
        needs = first.reason in ("dead_worker", "expired", "ending") and not self._workers
        return [self._no_worker()] if needs else []

    # -- it waits

    async def pending(self, standing: Position) -> Explanation:
        reasons = [self._not_due()] if self._record.due > self._now else []
        reasons += [self._paused(blocker) for blocker in standing.blockers if blocker.reason == "paused"]
        reasons += self._nobody_there()
        reasons += [await self._limited(hold) for hold in standing.blockers if hold.reason != "paused"]
        if self._record.is_suspect:
            reasons += await self._crowded()
        told = _NO_TELLING.isdisjoint(reason.reason for reason in reasons)
        start = await self._start(standing) if told else None
        if standing.ahead or not reasons:
            reasons.append(_behind(standing.ahead, start, only=not reasons))
        return _told(self._record, reasons, standing.ahead, start)

    def _not_due(self) -> ExplanationReason:
        record, due = self._record, from_ms(self._record.due)
        if not record.history.retries:
            return ExplanationReason("not_due", f"it is not due before {_moment(record.due)}", due)
        most = [worker.max_retries.get(record.source, 0) for worker in self._workers.values()]
        of = f" of {max(most)}" if any(most) else ""
        failure = decode_failure(record.history.error)
        after = "" if failure is None else f", after {failure.type}: {failure.message}"
        return ExplanationReason(
            "retry", f"it waits for retry {record.history.retries}{of} at {_moment(record.due)}{after}", due
        )

    def _paused(self, blocker: Blocker) -> ExplanationReason:
        own = blocker.limit.name == self._record.source
        reason, _ = read_reason(blocker.limit.reason)
        why = f": {reason}" if reason else ""
        return ExplanationReason(
            "source_paused" if own else "key_paused", f"{_named(blocker.limit.name)} is paused{why}"
        )

    def _nobody_there(self) -> list[ExplanationReason]:
        source = self._record.source
        if not self._workers:
            return [self._no_worker()]
        if any(source in worker.sources for worker in self._workers.values()):
            return []
        alive = [Holder(None, worker.id, _where(worker), worker.started) for worker in self._workers.values()]
        known = sorted({name for worker in self._workers.values() for name in worker.sources})
        who = "no live worker knows" if len(alive) > 1 else "the only live worker does not know"
        text = f"{who} {source}; known are: {_listed(known)}"
        return [ExplanationReason("unknown", text, None, tuple(alive[:_SHOWN]), len(alive))]

    def _no_worker(self) -> ExplanationReason:
        return ExplanationReason("no_worker", "no worker is alive; start one: onthedot worker")

    async def _limited(self, blocker: Blocker) -> ExplanationReason:
        limit, own = blocker.limit, blocker.limit.name == self._record.source
        if blocker.reason == "rate":
            return self._rated(blocker)
        where = {"source": limit.name} if own else {"lane": limit.name}
        holders = [record async for record in sample(self._store, {**where, "state": "running"}, _SHOWN)]
        text = f"{_named(limit.name)} may run {limit.cap} at once, and {plural(blocker.running, 'runs', 'run')}"
        count, let_in = blocker.running, (limit.cap or 0) - blocker.running
        if not own and let_in > 0:  # they have its last places, and do not run yet
            text += f", {plural(let_in, 'is', 'are')} about to"
            count += let_in
            holders += [record async for record in sample(self._store, {**where, "state": "ready"}, _SHOWN)]
        return ExplanationReason("source_limit" if own else "key_limit", text, None, self._holders(holders), count)

    def _rated(self, blocker: Blocker) -> ExplanationReason:
        text = f"{_named(blocker.limit.name)} may start {rate_text(blocker.limit.rate or 0)}"
        if blocker.opens_in is not None:
            until = self._now + blocker.opens_in
            return ExplanationReason("rate", f"{text}, and the next at {_moment(until)}", from_ms(until))
        return ExplanationReason("rate", f"{text}, and others are to start before")

    async def _crowded(self) -> list[ExplanationReason]:
        """A worker runs one at a time of those whose next crash would be their last."""
        able = {worker.id for worker in self._workers.values() if self._record.source in worker.sources}
        running = [record async for record in sample(self._store, {"state": "running"}, _MOST) if record.is_suspect]
        busy = [record for record in running if record.history.session in able]
        if not able or {record.history.session for record in busy} != able:
            return []
        text = "its next crash would be its last, and a worker runs one such task at a time: all have one"
        return [ExplanationReason("suspect", text, None, self._holders(busy), len(busy))]

    # -- when

    async def _start(self, standing: Position) -> float | None:
        """Those before it, at the pace at which others had their turn; a rate is known without that."""
        record, ahead = self._record, standing.ahead
        if record.due > self._now:
            return record.due
        by_lane = any(blocker.limit.name == record.lane for blocker in standing.blockers)
        if by_lane:
            assert record.lane is not None
            ahead = await self._parked_before(record.lane, ahead) if record.state == "parked" else 0
        turns = await start_rate(self._store, record.source, record.lane if by_lane else None, self._now)
        waits = [] if turns is None else [(ahead + 1) / turns]
        waits += [
            hold.opens_in + ahead / hold.limit.rate * 1000
            for hold in standing.blockers
            if hold.opens_in is not None and hold.limit.rate is not None
        ]
        return self._now + max(waits) if waits else None

    async def _parked_before(self, lane: str, ahead: int) -> int:
        """Of those before it, how many its lane holds back; if they are too many to look at, take them for all."""
        place = (self._record.rank, self._record.seq)
        where = {"lane": lane, "state": "parked", "until": str(self._record.added + 1)}
        before = [(record.rank, record.seq) < place async for record in sample(self._store, where, _MOST)]
        return ahead if len(before) >= _MOST else sum(before)

    def _holders(self, records: Sequence[Record]) -> tuple[Holder, ...]:
        holders: list[Holder] = []
        for record in records[:_SHOWN]:
            name = record.history.session if record.state == "running" else None
            worker = self._workers.get(name or "")
            since = None if name is None else from_ms(record.history.started or 0)
            holders.append(Holder(record.uuid, name, "" if worker is None else _where(worker), since))
        return tuple(holders)


def _behind(ahead: int, start: float | None, *, only: bool) -> ExplanationReason:
    many = f"{ahead:,} or more tasks" if ahead >= MAX_AHEAD else plural(ahead, "task")
    place = f"behind {many}" if ahead else "the next to start when a worker has a free slot"
    guess = "no estimate: nothing of it has ended yet" if start is None else f"starts about {_moment(start)}"
    return ExplanationReason("behind", f"{place}; {guess}" if only else place)


def _where(worker: WorkerInfo) -> str:
    return f"{worker.host}:{worker.pid}" if worker.host else "?"


def _named(limit: str) -> str:
    """
    >>> _named("report"), _named("report/acme"), _named("@openai"), _named("@openai/acme")
    ('report', 'acme of report', '@openai', 'acme of @openai')
    """
    head, slash, key = limit.partition("/")
    return f"{key} of {head}" if slash else head


def _moment(ms: float) -> str:
    return from_ms(ms).isoformat(" ", "seconds").replace("+00:00", " UTC")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more if names else "none"
