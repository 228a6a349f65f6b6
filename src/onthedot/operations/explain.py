"""Why a task is not running: from the rules that the claim goes by, and from who is there to claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from onthedot.clock.clock import from_ms
from onthedot.model.failures import read_failure
from onthedot.model.limits import rate_text
from onthedot.model.task import TaskState
from onthedot.operations.sources import read_reason
from onthedot.operations.start_rate import pace, some
from onthedot.operations.workers import WorkerInfo, as_worker
from onthedot.stores.contract import AHEAD, Hold, Record, Standing, Store
from onthedot.stores.rules.records import ENDED, ENDING, expiry

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
class Reason:
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
    also: tuple[Reason, ...] = ()


async def explain(store: Store, record: Record, now: float) -> Explanation:
    """now: by the store's clock, as far as one knows it."""
    _, _, sessions = await store.state()
    workers = {name: as_worker(name, info, 0) for name, info in sessions.items()}
    for _ in range(_TRIES):  # it may begin or end between two looks
        about = _About(store, record, workers, now)
        if (settled := about.not_waiting()) is not None:
            return _told(record, [settled, *about.hands_missing(settled)])
        standing = await store.standing(record.uuid)
        if standing is not None:
            return await about.waiting(standing)
        (record,) = [each or record for each in await store.get((record.uuid,))]
    return await _About(store, record, workers, now).waiting(Standing((), 0))


def _told(record: Record, reasons: Sequence[Reason], ahead: int = 0, start: float | None = None) -> Explanation:
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

    def not_waiting(self) -> Reason | None:
        record, past = self._record, self._record.past
        if record.state in ENDED:
            failure = read_failure(past.error) if record.state != "succeeded" else None
            why = "" if failure is None else ": " + (f"{failure.type}: " if failure.type else "") + failure.message
            return Reason("ended", f"{record.state} at {_moment(past.ended or 0)}{why}")
        if record.state == "running":
            return self._running()
        if past.why == "cancel" or past.cancel:
            return Reason("cancelling", "somebody wants to cancel it: it is being ended without a run")
        if past.why == "lifted":
            return Reason("moving", "it is on its way to another store: `onthedot move`, run again, goes on with it")
        ends = expiry(record)
        if past.why == "expired" or (ends is not None and ends <= self._now):
            since = "" if ends is None else f" at {_moment(ends)}"
            return Reason("expired", f"it expired{since}: a worker ends it without a run at its next turn")
        if past.why == "crashed":
            return Reason("ending", f"its worker died {past.crashes} times over it: a worker ends it at its next turn")
        if past.why in ENDING:
            return Reason("ending", f"nobody knows {record.source}: it is being ended without a run")
        return None

    def _running(self) -> Reason:
        record, past = self._record, self._record.past
        by = self._holders([record])
        since = _moment(past.started or 0)
        if past.session not in self._workers:
            text = f"held by worker {past.session}, which is not alive any more: taken back at a worker's next turn"
            return Reason("dead_worker", text, by=by, by_count=1)
        where = f"runs on worker {past.session} ({by[0].where}) since {since}"
        if past.cancel:
            return Reason("cancelling", f"somebody wants to cancel it, and its worker was told; {where}", None, by, 1)
        return Reason("running", where, None, by, 1)

    def hands_missing(self, first: Reason) -> list[Reason]:
        """What a worker is to do needs one."""
        needs = first.reason in ("dead_worker", "expired", "ending") and not self._workers
        return [self._no_worker()] if needs else []

    # -- it waits

    async def waiting(self, standing: Standing) -> Explanation:
        reasons = [self._not_due()] if self._record.due > self._now else []
        reasons += [self._paused(hold) for hold in standing.holds if hold.why == "paused"]
        reasons += self._nobody_there()
        reasons += [await self._limited(hold) for hold in standing.holds if hold.why != "paused"]
        if self._record.suspect:
            reasons += await self._crowded()
        told = _NO_TELLING.isdisjoint(reason.reason for reason in reasons)
        start = await self._start(standing) if told else None
        if standing.ahead or not reasons:
            reasons.append(_behind(standing.ahead, start, only=not reasons))
        return _told(self._record, reasons, standing.ahead, start)

    def _not_due(self) -> Reason:
        record, due = self._record, from_ms(self._record.due)
        if not record.past.retries:
            return Reason("not_due", f"it is not due before {_moment(record.due)}", due)
        most = [worker.max_retries.get(record.source, 0) for worker in self._workers.values()]
        of = f" of {max(most)}" if any(most) else ""
        failure = read_failure(record.past.error)
        after = "" if failure is None else f", after {failure.type}: {failure.message}"
        return Reason("retry", f"it waits for retry {record.past.retries}{of} at {_moment(record.due)}{after}", due)

    def _paused(self, hold: Hold) -> Reason:
        own = hold.limit.name == self._record.source
        reason, _ = read_reason(hold.limit.reason)
        why = f": {reason}" if reason else ""
        return Reason("source_paused" if own else "key_paused", f"{_named(hold.limit.name)} is paused{why}")

    def _nobody_there(self) -> list[Reason]:
        source = self._record.source
        if not self._workers:
            return [self._no_worker()]
        if any(source in worker.sources for worker in self._workers.values()):
            return []
        alive = [Holder(None, worker.id, _where(worker), worker.started) for worker in self._workers.values()]
        known = sorted({name for worker in self._workers.values() for name in worker.sources})
        who = "no live worker knows" if len(alive) > 1 else "the only live worker does not know"
        text = f"{who} {source}; known are: {_listed(known)}"
        return [Reason("unknown", text, None, tuple(alive[:_SHOWN]), len(alive))]

    def _no_worker(self) -> Reason:
        return Reason("no_worker", "no worker is alive; start one: onthedot worker")

    async def _limited(self, hold: Hold) -> Reason:
        limit, own = hold.limit, hold.limit.name == self._record.source
        if hold.why == "rate":
            return self._rated(hold)
        where = {"source": limit.name} if own else {"lane": limit.name}
        holders = [record async for record in some(self._store, {**where, "state": "running"}, _SHOWN)]
        text = f"{_named(limit.name)} may run {limit.cap} at once, and {_count(hold.running, 'runs', 'run')}"
        count, let_in = hold.running, (limit.cap or 0) - hold.running
        if not own and let_in > 0:  # they have its last places, and do not run yet
            text += f", {_count(let_in, 'is', 'are')} about to"
            count += let_in
            holders += [record async for record in some(self._store, {**where, "state": "ready"}, _SHOWN)]
        return Reason("source_limit" if own else "key_limit", text, None, self._holders(holders), count)

    def _rated(self, hold: Hold) -> Reason:
        text = f"{_named(hold.limit.name)} may start {rate_text(hold.limit.rate or 0)}"
        if hold.opens_in is not None:
            until = self._now + hold.opens_in
            return Reason("rate", f"{text}, and the next at {_moment(until)}", from_ms(until))
        return Reason("rate", f"{text}, and others are to start before")

    async def _crowded(self) -> list[Reason]:
        """A worker runs one at a time of those whose next crash would be their last."""
        able = {worker.id for worker in self._workers.values() if self._record.source in worker.sources}
        running = [record async for record in some(self._store, {"state": "running"}, _MOST) if record.suspect]
        busy = [record for record in running if record.past.session in able]
        if not able or {record.past.session for record in busy} != able:
            return []
        text = "its next crash would be its last, and a worker runs one such task at a time: all have one"
        return [Reason("suspect", text, None, self._holders(busy), len(busy))]

    # -- when

    async def _start(self, standing: Standing) -> float | None:
        """Those before it, at the pace at which others had their turn; a rate is known without that."""
        record, ahead = self._record, standing.ahead
        if record.due > self._now:
            return record.due
        by_lane = any(hold.limit.name == record.lane for hold in standing.holds)
        if by_lane:
            assert record.lane is not None
            ahead = await self._parked_before(record.lane, ahead) if record.state == "parked" else 0
        turns = await pace(self._store, record.source, record.lane if by_lane else None, self._now)
        waits = [] if turns is None else [(ahead + 1) / turns]
        waits += [
            hold.opens_in + ahead / hold.limit.rate * 1000
            for hold in standing.holds
            if hold.opens_in is not None and hold.limit.rate is not None
        ]
        return self._now + max(waits) if waits else None

    async def _parked_before(self, lane: str, ahead: int) -> int:
        """Of those before it, how many its lane holds back; if they are too many to look at, take them for all."""
        place = (self._record.rank, self._record.seq)
        where = {"lane": lane, "state": "parked", "until": str(self._record.added + 1)}
        before = [(record.rank, record.seq) < place async for record in some(self._store, where, _MOST)]
        return ahead if len(before) >= _MOST else sum(before)

    def _holders(self, records: Sequence[Record]) -> tuple[Holder, ...]:
        holders: list[Holder] = []
        for record in records[:_SHOWN]:
            name = record.past.session if record.state == "running" else None
            worker = self._workers.get(name or "")
            since = None if name is None else from_ms(record.past.started or 0)
            holders.append(Holder(record.uuid, name, "" if worker is None else _where(worker), since))
        return tuple(holders)


def _behind(ahead: int, start: float | None, *, only: bool) -> Reason:
    many = f"{ahead:,} or more tasks" if ahead >= AHEAD else _count(ahead, "task", "tasks")
    place = f"behind {many}" if ahead else "the next to start when a worker has a free slot"
    guess = "no estimate: nothing of it has ended yet" if start is None else f"starts about {_moment(start)}"
    return Reason("behind", f"{place}; {guess}" if only else place)


def _where(worker: WorkerInfo) -> str:
    return f"{worker.host}:{worker.pid}" if worker.host else "?"


def _named(limit: str) -> str:
    """
    >>> _named("report"), _named("report/acme"), _named("@openai"), _named("@openai/acme")
    ('report', 'acme of report', '@openai', 'acme of @openai')
    """
    head, slash, key = limit.partition("/")
    return f"{key} of {head}" if slash else head


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _moment(ms: float) -> str:
    return from_ms(ms).isoformat(" ", "seconds").replace("+00:00", " UTC")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more if names else "none"
