"""Firing schedules: which windows run, as which tasks, and which comes next. By compare-and-set, without a leader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from onthedot.clock.epoch import from_ms, to_ms
from onthedot.clock.protocol import Clock
from onthedot.definitions.sources import Sources
from onthedot.errors import StoreBusy
from onthedot.model.limits import merge_by_name
from onthedot.model.traces import SendSpan, TaskTracer
from onthedot.observability.events import Observer
from onthedot.schedules.definition import ScheduleDefinition, resolve_rule
from onthedot.schedules.stored_rule import decode_rule, encode_rule, store_now, task_for_window, with_skipped
from onthedot.schedules.windows import due_windows
from onthedot.stores.contract import FireRequest, Limit, Schedule, Store

_ATTEMPTS = 10  # at a compare-and-set, while other processes change the same schedules


@dataclass(frozen=True)
class _Decision:
    before: Schedule
    fire: FireRequest
    windows: tuple[int, ...]  # the nominal times of its tasks
    missed: int  # windows that do not run, because a newer one is due or they are too late


@dataclass(frozen=True)
class FireResult:
    """changed: schedules have changed, here or by another worker, so another turn is due.

    sources: they may have ready tasks. A worker that fired first may have died before its hint was sent.
    """

    changed: bool
    sources: frozenset[str]


@dataclass(eq=False)
class ScheduleFirer:
    """Writes the limits and schedules of code to the store, and fires the schedules that are due."""

    store: Store
    sources: Sources
    definitions: Mapping[str, ScheduleDefinition]
    clock: Clock
    observer: Observer
    on_error: Callable[[Exception], object] | None = None  # called when a rule raises; other schedules continue
    tracer: TaskTracer | None = None

    def __post_init__(self) -> None:
        self._started = False
        self._registered: set[str] = set()
        self._failed: dict[str, int] = {}  # schedules whose rule raises, and the revision that was reported

    async def declare(self) -> None:
        """Writes limits and schedules as code declares them now; repeated when a source is added later."""
        definitions = dict(self.definitions)
        limits = [limit for name, source in self.sources.items() for limit in source.limits(name)]
        limits += [limit for definition in definitions.values() for limit in definition.limits()]
        limits = merge_by_name(limits)
        limits += await self._obsolete_limits({limit.name for limit in limits})
        await self.store.put_limits(limits)
        for _ in range(_ATTEMPTS):
            now = store_now(self.store, self.clock)
            stored = await self._records()
            merged = [self._merge(definition, stored, now) for definition in definitions.values()]
            schedules = [schedule for schedule in merged if schedule is not None]
            written = await self.store.put_schedules(schedules)
            for schedule, is_written in zip(schedules, written, strict=True):
                old = stored.get(schedule.name)
                if is_written and old is not None and not old.definition_digest:
                    self.observer.schedule_taken_over(schedule.name)
            if all(written):
                break
        else:
            raise StoreBusy(
                f"other processes changed the schedules {_ATTEMPTS} times while they were declared: try again"
            )
        self._started = True
        await self._report_registered(definitions.keys() - self._registered)

    def _merge(self, definition: ScheduleDefinition, stored: Mapping[str, Schedule], now: float) -> Schedule | None:
        """A custom rule that raises prevents the start of a worker, but does not stop one that runs."""
        try:
            return definition.merged_with(stored.get(definition.name), now)
        except Exception as error:
            if not self._started:
                raise
            self._report_failed(definition.name, -1, error)
            return None

    async def _records(self) -> dict[str, Schedule]:
        return {record.name: record for record in await self.store.schedules()}

    async def _report_registered(self, names: set[str]) -> None:
        if not names:
            return
        self._registered |= names
        stored = await self._records()
        for name in names & stored.keys():
            self.observer.schedule_registered(name, stored[name].next_at)

    async def _obsolete_limits(self, names: set[str]) -> list[Limit]:
        """Empty limits for those that earlier code declared for these sources; otherwise they would hold for ever."""
        stored = [limit for limit in await self.store.limits() if limit.owner == "code"]
        ours = [limit for limit in stored if limit.name.partition("/")[0] in self.sources.known]
        return [Limit(limit.name) for limit in ours if limit.name not in names and limit != Limit(limit.name)]

    async def fire(self, due: Sequence[Schedule], now: float) -> FireResult:
        """`now` is the store's time."""
        decisions = [decision for record in due if (decision := self._try_decide(record, now)) is not None]
        if not decisions:
            return FireResult(changed=False, sources=frozenset())
        spans: list[SendSpan] = []
        fires = [decision.fire for decision in decisions]
        if self.tracer is not None:
            spans = [self.tracer.begin_window(fire.name, fire.tasks) for fire in fires]
            fires = [replace(fire, tasks=tuple(span.tasks)) for fire, span in zip(fires, spans, strict=True)]
        written = await self.store.fire(fires)
        for span, is_written in zip(spans, written, strict=False):
            if is_written:  # otherwise another worker has fired it, in a trace of its own
                span.end()
        fired = [decision for decision, is_written in zip(decisions, written, strict=True) if is_written]
        await self._account(fired)
        sources = frozenset(task.source for decision in decisions for task in decision.fire.tasks)
        return FireResult(changed=True, sources=sources)

    def _try_decide(self, record: Schedule, now: float) -> _Decision | None:
        try:
            return self._decide(record, now)
        except Exception as error:  # noqa: BLE001 - a custom rule may raise anything; other schedules continue
            self._report_failed(record.name, record.rev, error)
            return None

    def _report_failed(self, name: str, rev: int, error: Exception) -> None:
        if self.on_error is not None:
            self.on_error(error)
        if self._failed.get(name) != rev:
            self._failed[name] = rev
            self.observer.schedule_failed(name, error)

    def _decide(self, record: Schedule, now: float) -> _Decision | None:
        """None: the code of another process declares it, or no code any more."""
        if record.definition_digest and record.name not in self.definitions:
            return None
        stored = decode_rule(record)
        rule = resolve_rule(record.name, stored, self.definitions)
        if rule is None:
            return None
        assert record.next_at is not None
        moment = from_ms(max(now, record.next_at))  # the store has returned it, so it is due
        windows = due_windows(rule, from_ms(record.next_at), moment, rule.catch_up, rule.grace)
        is_portion = windows.next_at is not None and windows.next_at <= moment
        current = None if is_portion else max(windows.run, default=None)
        ahead = self.clock.wall_clock_jump() if not self.store.traits.shared else 0.0
        tasks = tuple(
            task_for_window(record.name, stored, rule, window, missed=window != current, ahead=ahead)
            for window in windows.run
        )
        next_at = None if windows.next_at is None else to_ms(windows.next_at)
        nominal = tuple(map(to_ms, windows.run))
        fire = FireRequest(record.name, record.rev, tasks, next_at, nominal[-1] if nominal else None)
        return _Decision(record, fire, nominal, windows.skipped)

    # -- windows that do not run

    async def _account(self, fired: Sequence[_Decision]) -> None:
        """Reports added tasks and counts skipped windows. A window whose unique key is taken has added no task."""
        keyed = [task.uuid for decision in fired for task in decision.fire.tasks if task.unique is not None]
        found = await self.store.get(keyed) if keyed else ()
        absent = {uuid for uuid, record in zip(keyed, found, strict=True) if record is None}
        for decision in fired:
            if decision.missed or any(task.uuid in absent for task in decision.fire.tasks):
                await self._count_skipped(decision, absent)
            else:
                self._report_due(decision.fire.name, decision.windows)
        self.observer.tasks_added(
            [task for decision in fired for task in decision.fire.tasks if task.uuid not in absent]
        )

    def _report_due(self, name: str, windows: Sequence[int]) -> None:
        for at in windows:
            self.observer.schedule_fired(name, at)

    async def _count_skipped(self, decision: _Decision, absent: set[str]) -> None:
        name = decision.fire.name
        tasks = decision.fire.tasks
        ran = [at for at, task in zip(decision.windows, tasks, strict=True) if task.uuid not in absent]
        record = (await self._records()).get(name)
        overlaps = len(tasks) - len(ran)
        if record is not None:  # a task that has run and is not retained is absent, too
            overlaps = min(overlaps, max(0, len(tasks) - (record.runs - decision.before.runs)))
        self._report_due(name, ran if overlaps else decision.windows)
        self.observer.windows_skipped(name, "missed", decision.missed)
        self.observer.windows_skipped(name, "overlap", overlaps)
        if not overlaps and not decision.missed:
            return
        for _ in range(_ATTEMPTS):  # then it is given up: the count only informs, and the log has it
            if record is None:
                return
            stored = with_skipped(with_skipped(decode_rule(record), "missed", decision.missed), "overlap", overlaps)
            last_at = record.last_at
            if overlaps and last_at == decision.fire.last_at:  # of the windows that ran, not of those that could have
                last_at = ran[-1] if ran else decision.before.last_at
            if (await self.store.put_schedules([replace(record, rule=encode_rule(stored), last_at=last_at)]))[0]:
                return
            record = (await self._records()).get(name)
