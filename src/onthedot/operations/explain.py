"""Why a task is not running: by the rules of the claim, and by the workers that could claim it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo

from onthedot.clock.epoch import from_ms, from_optional_ms, to_ms
from onthedot.errors import suggestion
from onthedot.model.failures import decode_failure
from onthedot.model.flow_names import JOIN, STOP
from onthedot.model.limits import rate_text
from onthedot.model.task import TaskState
from onthedot.model.task_info import public_state
from onthedot.operations.explain_actions import ReasonAction, limit_action, resume_action, signal_action
from onthedot.operations.explain_waits import wait_for_tasks
from onthedot.operations.humanize import moment_text, plural, short_id, suffix
from onthedot.operations.start_rate import sample, start_rate
from onthedot.operations.waits import awaited_signals, is_over, is_sleeping, signal_text
from onthedot.operations.workers import WorkerInfo, live_workers
from onthedot.stores.contract import ENDED, MAX_AHEAD, Blocker, Position, Record, Store, Wait
from onthedot.stores.rules.records import UNQUEUED_REASONS, expiry

_MAX_HOLDERS = 5  # shown
_MAX_SAMPLE = 1000  # running tasks that are read
_MAX_TRIES = 3
_MAX_DEPTH = 4  # waits that are followed: of a task for a flow, of that for another one
_NO_ESTIMATE = frozenset({"source_paused", "key_paused", "no_worker", "unknown"})  # only a person can change it


@dataclass(frozen=True, slots=True)
class Holder:
    """One that holds a task back: a task and the worker that runs it, or a worker alone."""

    uuid: str | None
    worker: str | None
    where: str = ""  # its host and process
    since: datetime | None = None
    source: str = ""  # of the task


@dataclass(frozen=True, slots=True)
class ExplanationReason:
    """One reason why a task is not running."""

    reason: str
    text: str
    until: datetime | None = None  # when it ends by itself
    by: tuple[Holder, ...] = ()  # some of them
    by_count: int = 0  # how many there are
    action: ReasonAction | None = None  # of an operator, which ends it


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a task is not running, as ``app.explain(uuid)`` returns it.

    `reason` is a stable word: ``not_due retry source_paused key_paused no_worker unknown source_limit key_limit rate
    suspect behind`` for a pending task, ``expired cancelling ending`` for one that is about to be ended without a run,
    ``moving`` for one between two stores, ``waiting_tasks incomplete_flow waiting_signal waking`` for one that waits,
    ``running dead_worker ended``. `also` has the reasons that would remain without the first; for a task that waits for
    others, why the tasks do not end that hold it back, each with the name of its task.
    """

    uuid: str
    """Id of the task."""
    source: str
    """Name of its function or consumer."""
    state: TaskState
    """Its state."""
    reason: str
    """The first reason, as a word."""
    text: str
    """The first reason, as a sentence."""
    until: datetime | None = None
    """When that reason ends by itself."""
    by: tuple[Holder, ...] = ()
    """Some of the tasks and workers that hold it back."""
    by_count: int = 0
    """How many of them there are."""
    ahead: int = 0
    """How many tasks start before it."""
    estimated_start: datetime | None = None
    """When it may start, by the rate of the last starts."""
    also: tuple[ExplanationReason, ...] = ()
    """The reasons that would remain without the first; for a task that waits for others, the reasons of these."""
    action: ReasonAction | None = None
    """The request to the HTTP API that ends the first reason, if an operator can."""


async def explain(store: Store, record: Record, now: float, zone: tzinfo | None = UTC) -> Explanation:
    """now: the store's time, as far as it is known. zone: of the times in texts; None: local time."""
    workers = {worker.id: worker for worker in await live_workers(store)}
    return await _explain(store, record, workers, now, zone, _MAX_DEPTH)


async def _explain(
    store: Store, record: Record, workers: Mapping[str, WorkerInfo], now: float, zone: tzinfo | None, depth: int
) -> Explanation:
    """depth: how many waits are followed to the tasks that hold them."""
    for _ in range(_MAX_TRIES):  # the task may start or end between two reads
        explainer = _Explainer(store, record, workers, now, zone)
        reason = explainer.not_pending()
        if reason is not None:
            return _explanation(record, [reason, *explainer.missing_worker(reason)])
        if record.wait is not None:
            return _explanation(record, await explainer.waiting(record.wait, depth))
        position = await store.position(record.uuid)
        if position is not None:
            return await explainer.pending(position)
        (current,) = await store.get((record.uuid,))
        record = current or record
    return await _Explainer(store, record, workers, now, zone).pending(Position((), 0))


def _explanation(
    record: Record, reasons: Sequence[ExplanationReason], ahead: int = 0, start: float | None = None
) -> Explanation:
    first, *also = reasons
    return Explanation(
        record.uuid,
        record.source,
        public_state(record.state),
        first.reason,
        first.text,
        first.until,
        first.by,
        first.by_count,
        ahead,
        from_optional_ms(start),
        tuple(also),
        first.action,
    )


class _Explainer:
    """Finds the reasons for one task; `workers` are those that live."""

    def __init__(
        self, store: Store, record: Record, workers: Mapping[str, WorkerInfo], now: float, zone: tzinfo | None
    ) -> None:
        self._store = store
        self._record = record
        self._workers = workers
        self._now = now
        self._zone = zone

    def _moment(self, ms: float) -> str:
        return moment_text(ms, self._zone)

    # -- not pending

    def not_pending(self) -> ExplanationReason | None:
        record = self._record
        history = record.history
        if record.state in ENDED:
            return self._ended()
        if record.state == "running":
            return self._running()
        if history.reason == "cancel" or history.cancel_requested:
            return ExplanationReason("cancelling", "its cancel is requested: it is being ended without a run")
        if history.reason == "lifted":
            return ExplanationReason(
                "moving", "it is on its way to another store: run `onthedot move` again to continue"
            )
        ends = expiry(record)
        if history.reason == "expired" or (ends is not None and ends <= self._now):
            since = "" if ends is None else f" at {self._moment(ends)}"
            return ExplanationReason("expired", f"it expired{since}: a worker ends it without a run at its next turn")
        if history.reason == "crashed":
            return ExplanationReason(
                "ending", f"its worker died {history.crashes} times over it: a worker ends it at its next turn"
            )
        if history.reason in UNQUEUED_REASONS:
            return ExplanationReason("ending", f"nobody knows {record.source}: it is being ended without a run")
        return None

    def _ended(self) -> ExplanationReason:
        record = self._record
        text = f"{record.state} at {self._moment(record.history.ended or 0)}"
        if record.state != "succeeded" and (failure := decode_failure(record.history.error)) is not None:
            text += suffix(": ", failure.type) + f": {failure.message}"
        return ExplanationReason("ended", text)

    def _running(self) -> ExplanationReason:
        record = self._record
        history = record.history
        by = self._holders([record])
        since = self._moment(history.started or 0)
        name = short_id(history.session or "")
        if history.session not in self._workers:
            text = f"leased to worker {name}, which is dead: requeued at a worker's next turn"
            return ExplanationReason("dead_worker", text, by=by, by_count=1)
        where = f"runs on worker {name} ({by[0].where}) since {since}"
        if history.cancel_requested:
            return ExplanationReason(
                "cancelling", f"its cancel is requested, and its worker is notified; {where}", None, by, 1
            )
        return ExplanationReason("running", where, None, by, 1)

    def missing_worker(self, first: ExplanationReason) -> list[ExplanationReason]:
        """Some reasons end only at a worker's turn."""
        if first.reason in ("dead_worker", "expired", "ending", "waking") and not self._workers:
            return [self._no_worker()]
        return []

    # -- waiting

    async def waiting(self, wait: Wait, depth: int) -> list[ExplanationReason]:
        if await is_over(self._store, wait):
            over = ExplanationReason("waking", "its wait is over: a worker moves it to ready at its next turn")
            return [over, *self.missing_worker(over)]
        record = self._record
        until = from_optional_ms(record.history.wait_until)
        if signals := awaited_signals(wait):
            text = await signal_text(self._store, record, wait, self._moment)
            action = signal_action(signals[0], record.uuid)
            return [ExplanationReason("waiting_signal", text, until, action=action)]
        found = await wait_for_tasks(self._store, wait, self._moment)
        text = found.text
        if found.reason == "incomplete_flow" and record.history.wait_until is not None:
            text += f"; it ends at {self._moment(record.history.wait_until)} if that does not happen"
        first = ExplanationReason(found.reason, text, until, self._holders(found.holders), found.missing)
        reasons = [first]
        for blocker in found.blockers if depth else ():
            reasons += await self._of_blocker(blocker, depth, direct=blocker in found.holders)
        return reasons

    async def _of_blocker(self, blocker: Record, depth: int, *, direct: bool) -> list[ExplanationReason]:
        """Why a task does not end that this one waits for. direct: the text of the wait says already that it runs."""
        found = await _explain(self._store, blocker, self._workers, self._now, self._zone, depth - 1)
        reason = ExplanationReason(found.reason, found.text, found.until, found.by, found.by_count, found.action)
        waits = found.reason in ("waiting_tasks", "incomplete_flow")  # then `also` is about tasks that it names
        name = f"{blocker.source} {short_id(blocker.uuid)}"
        own = [reason] if waits else [reason, *(each for each in found.also if each.reason != "behind")]
        named = [replace(each, text=f"{name}: {each.text}") for each in own]
        if waits:
            named += found.also
        return [each for each in named if not (direct and each.reason in ("running", "ended"))]

    # -- pending

    async def pending(self, position: Position) -> Explanation:
        reasons: list[ExplanationReason] = []
        if self._record.due > self._now:
            reasons.append(await self._not_due())
        reasons += [await self._paused(blocker) for blocker in position.blockers if blocker.reason == "paused"]
        reasons += self._unknown_source()
        reasons += [await self._limited(blocker) for blocker in position.blockers if blocker.reason != "paused"]
        if self._record.is_suspect:
            reasons += await self._suspects_running()
        start: float | None = None
        if _NO_ESTIMATE.isdisjoint(reason.reason for reason in reasons):
            start = await self._estimated_start(position)
        if position.ahead or not reasons:
            reasons.append(self._behind(position.ahead, start, only=not reasons))
        return _explanation(self._record, reasons, position.ahead, start)

    async def _not_due(self) -> ExplanationReason:
        record = self._record
        due = from_ms(record.due)
        if await is_sleeping(self._store, record):
            return ExplanationReason("not_due", f"it sleeps until {self._moment(record.due)}", due)
        if not record.history.retries:
            return ExplanationReason("not_due", f"it is not due before {self._moment(record.due)}", due)
        most = [worker.max_retries.get(record.source, 0) for worker in self._workers.values()]
        of = f" of {max(most)}" if any(most) else ""
        failure = decode_failure(record.history.error)
        after = ""
        if failure is not None:
            if failure.ended_at is not None:
                after = f"; attempt {failure.attempt} ended at {self._moment(to_ms(failure.ended_at))}"
            after += f", after {failure.type}: {failure.message}"
        return ExplanationReason(
            "retry", f"it waits for retry {record.history.retries}{of} at {self._moment(record.due)}{after}", due
        )

    async def _paused(self, blocker: Blocker) -> ExplanationReason:
        own = blocker.limit.name == self._record.source
        text = f"{_limit_name(blocker.limit.name)} is paused"
        if blocker.limit.reason:
            text += f": {blocker.limit.reason}"
        action = resume_action(blocker.limit.name, await self._store.limits())
        return ExplanationReason("source_paused" if own else "key_paused", text, action=action)

    def _unknown_source(self) -> list[ExplanationReason]:
        source = self._record.source
        if not self._workers:
            return [self._no_worker()]
        if source in (JOIN, STOP) or any(source in worker.sources for worker in self._workers.values()):
            return []
        alive = [Holder(None, worker.id, _where(worker), worker.started) for worker in self._workers.values()]
        known = sorted({name for worker in self._workers.values() for name in worker.sources})
        who = "no live worker knows" if len(alive) > 1 else "the only live worker does not know"
        text = f"{who} {source}{suggestion(source, known)}"
        return [ExplanationReason("unknown", text, None, tuple(alive[:_MAX_HOLDERS]), len(alive))]

    def _no_worker(self) -> ExplanationReason:
        return ExplanationReason("no_worker", "no worker is alive; start one: onthedot worker")

    async def _limited(self, blocker: Blocker) -> ExplanationReason:
        limit = blocker.limit
        own = limit.name == self._record.source
        if blocker.reason == "rate":
            return self._rated(blocker)
        where = {"source": limit.name} if own else {"lane": limit.name}
        holders = [record async for record in sample(self._store, {**where, "state": "running"}, _MAX_HOLDERS)]
        text = f"{_limit_name(limit.name)} may run {limit.cap} at once, and {plural(blocker.running, 'runs', 'run')}"
        count = blocker.running
        admitted = (limit.cap or 0) - count
        if not own and admitted > 0:  # they have the last places, and do not run yet
            text += f", {plural(admitted, 'is', 'are')} about to"
            count += admitted
            holders += [record async for record in sample(self._store, {**where, "state": "ready"}, _MAX_HOLDERS)]
        reason = "source_limit" if own else "key_limit"
        return ExplanationReason(reason, text, None, self._holders(holders), count, limit_action(limit.name))

    def _rated(self, blocker: Blocker) -> ExplanationReason:
        name = blocker.limit.name
        action = limit_action(name)
        text = f"{_limit_name(name)} may start {rate_text(blocker.limit.rate or 0)}"
        if blocker.opens_in is not None:
            until = self._now + blocker.opens_in
            return ExplanationReason(
                "rate", f"{text}, and the next at {self._moment(until)}", from_ms(until), action=action
            )
        return ExplanationReason("rate", f"{text}, and others are to start before", action=action)

    async def _suspects_running(self) -> list[ExplanationReason]:
        """A worker runs one suspect at a time."""
        able = {worker.id for worker in self._workers.values() if self._record.source in worker.sources}
        running = [
            record async for record in sample(self._store, {"state": "running"}, _MAX_SAMPLE) if record.is_suspect
        ]
        busy = [record for record in running if record.history.session in able]
        if not able or {record.history.session for record in busy} != able:
            return []
        text = "its next crash would be its last, and a worker runs one such task at a time: all have one"
        return [ExplanationReason("suspect", text, None, self._holders(busy), len(busy))]

    def _behind(self, ahead: int, start: float | None, *, only: bool) -> ExplanationReason:
        if ahead >= MAX_AHEAD:
            text = f"behind {ahead:,} or more tasks"
        elif ahead:
            text = f"behind {plural(ahead, 'task')}"
        else:
            text = "the next to start when a worker has a free slot"
        if only:
            estimate = "no estimate: nothing of it has ended yet"
            if start is not None:
                estimate = f"starts about {self._moment(start)}"
            text += f"; {estimate}"
        return ExplanationReason("behind", text)

    # -- estimated start

    async def _estimated_start(self, position: Position) -> float | None:
        """The tasks ahead at the rate at which others have started, or at the rate of a limit."""
        record = self._record
        ahead = position.ahead
        if record.due > self._now:
            return record.due
        by_lane = any(blocker.limit.name == record.lane for blocker in position.blockers)
        if by_lane and record.state == "parked":
            ahead = await self._parked_before(ahead)
        elif by_lane:
            ahead = 0
        starts_per_ms = await start_rate(self._store, record.source, record.lane if by_lane else None, self._now)
        waits = [
            blocker.opens_in + ahead / blocker.limit.rate * 1000
            for blocker in position.blockers
            if blocker.opens_in is not None and blocker.limit.rate is not None
        ]
        if starts_per_ms is not None:
            waits.append((ahead + 1) / starts_per_ms)
        if not waits:
            return None
        return self._now + max(waits)

    async def _parked_before(self, ahead: int) -> int:
        """Count the parked tasks before it; if there are too many to read, return `ahead`."""
        record = self._record
        assert record.lane is not None
        place = (record.rank, record.seq)
        where = {"lane": record.lane, "state": "parked"}
        before = [(other.rank, other.seq) < place async for other in sample(self._store, where, _MAX_SAMPLE)]
        return ahead if len(before) >= _MAX_SAMPLE and all(before) else sum(before)

    def _holders(self, records: Sequence[Record]) -> tuple[Holder, ...]:
        return tuple(self._holder(record) for record in records[:_MAX_HOLDERS])

    def _holder(self, record: Record) -> Holder:
        name = record.history.session
        if record.state != "running" or name is None:
            return Holder(record.uuid, None, source=record.source)
        where = ""
        if name in self._workers:
            where = _where(self._workers[name])
        return Holder(record.uuid, name, where, from_ms(record.history.started or 0), record.source)


def _where(worker: WorkerInfo) -> str:
    return f"{worker.host}:{worker.pid}" if worker.host else "?"


def _limit_name(limit: str) -> str:
    """
    >>> _limit_name("report"), _limit_name("report/acme"), _limit_name("@openai"), _limit_name("@openai/acme")
    ('report', 'acme of report', '@openai', 'acme of @openai')
    """
    head, slash, key = limit.partition("/")
    return f"{key} of {head}" if slash else head
