"""Firing schedules: which windows run, as which tasks, and what is next. Compare-and-set, so nobody leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from msgspec.structs import replace

from onthedot.clock.durations import to_seconds
from onthedot.clock.epoch import from_ms, to_ms
from onthedot.clock.protocol import Clock
from onthedot.definitions.sources import Sources
from onthedot.errors import StoreBusy
from onthedot.model.limits import merge_by_name
from onthedot.observability.logs import LogObserver
from onthedot.schedules.definition import ScheduleDefinition, resolve_rule
from onthedot.schedules.stored_rule import decode_rule, encode_rule, store_now, task_for_window, with_skipped
from onthedot.schedules.windows import due_windows
from onthedot.stores.contract import FireRequest, Limit, Schedule, Store

_TRIES = 10  # at a compare-and-set that others were faster at


@dataclass(frozen=True)
class _Decision:
    before: Schedule
    fire: FireRequest
    windows: tuple[int, ...]  # the nominal times of its tasks
    missed: int  # windows that are gone for good


class ScheduleFirer:
    """Declares what code says at start, and fires what is due."""

    def __init__(
        self,
        store: Store,
        sources: Sources,
        plans: Mapping[str, ScheduleDefinition],
        clock: Clock,
        logs: LogObserver,
        trouble: Callable[[Exception], object],
    ) -> None:
        """trouble: told of what keeps one schedule from firing, while the others go on."""
        self._trouble = trouble
        self._store = store
        self._sources = sources
        self._running = False
        self._told: set[str] = set()
        self._broken: dict[str, int] = {}  # schedules that cannot be fired, and the rev of which that was said
        self._plans = plans
        self._clock = clock
        self._logs = logs

    async def declare(self) -> None:
        """Limits and schedules, as code says them now; repeated when a source comes later."""
        plans = dict(self._plans)
        said = [limit for name, source in self._sources.items() for limit in source.limits(name)]
        limits = merge_by_name([*said, *(limit for plan in plans.values() for limit in plan.limits())])
        limits += await self._said_no_more({limit.name for limit in limits})
        await self._store.put_limits(limits)
        for _ in range(_TRIES):
            now, there = store_now(self._store, self._clock), await self._records()
            put = [new for plan in plans.values() if (new := self._over(plan, there, now)) is not None]
            answers = await self._store.put_schedules(put)
            for new, stored in zip(put, answers, strict=True):
                if stored and (old := there.get(new.name)) is not None and not old.definition_digest:
                    self._logs.scheduler.warning("schedule %s was put at run time; code declares it now", new.name)
            if all(answers):
                break
        else:
            raise StoreBusy(f"schedules changed {_TRIES} times while they were declared: who changes them?")
        self._running = True
        await self._tell_new(plans.keys() - self._told)

    def _over(self, plan: ScheduleDefinition, there: Mapping[str, Schedule], now: float) -> Schedule | None:
        """A rule of the user's own that fails stops a start, but not a worker that runs."""
        try:
            return plan.merged_with(there.get(plan.name), now)
        except Exception as error:
            if not self._running:
                raise
            self._tell_broken(plan.name, -1, error)
            return None

    async def _records(self) -> dict[str, Schedule]:
        return {record.name: record for record in (await self._store.schedules())}

    async def _tell_new(self, new: set[str]) -> None:
        if not new:
            return
        self._told |= new
        stored = await self._records()
        for name in new & stored.keys():
            next_at = stored[name].next_at
            shown = "never" if next_at is None else from_ms(next_at).isoformat()
            self._logs.scheduler.info("Schedule registered: %s next %s", name, shown)

    async def _said_no_more(self, names: set[str]) -> list[Limit]:
        """What earlier code said of these sources and today's does not: else the old limit would hold for ever."""
        known = self._sources.known
        limits = await self._store.limits()
        ours = [limit for limit in limits if limit.owner == "code" and limit.name.partition("/")[0] in known]
        return [Limit(limit.name) for limit in ours if limit.name not in names and limit != Limit(limit.name)]

    async def fire(self, due: Sequence[Schedule], now: float) -> bool:
        """At the store's moment. True: something moved, so look again."""
        decided = [each for record in due if (each := self._decided(record, now)) is not None]
        if not decided:
            return False
        answers = await self._store.fire([each.fire for each in decided])
        fired = [each for each, stood in zip(decided, answers, strict=True) if stood]
        for each in fired:
            if each.fire.last_at is not None:
                at = from_ms(each.fire.last_at).isoformat()
                self._logs.scheduler.info("[due] schedule %s at %s", each.fire.name, at)
        await self._account(fired)
        return True

    def _decided(self, record: Schedule, now: float) -> _Decision | None:
        """One that cannot be fired does not stop the others."""
        try:
            return self._decide(record, now)
        except Exception as error:  # noqa: BLE001 - a rule of the user's own may do anything
            self._tell_broken(record.name, record.rev, error)
            return None

    def _tell_broken(self, name: str, rev: int, error: Exception) -> None:
        self._trouble(error)
        if self._broken.get(name) != rev:
            self._broken[name] = rev
            self._logs.scheduler.error("schedule %s cannot be fired: %s", name, error, exc_info=error)

    def _decide(self, record: Schedule, now: float) -> _Decision | None:
        if record.definition_digest and record.name not in self._plans:
            return None  # another process's code declares it, or none any more
        stored = decode_rule(record)
        rule = resolve_rule(record.name, stored, self._plans)
        if rule is None:
            return None
        assert record.next_at is not None
        moment = from_ms(max(now, record.next_at))  # the store says that it is due
        on_time = moment - timedelta(seconds=to_seconds(rule.grace, "grace"))
        windows = due_windows(rule, from_ms(record.next_at), moment, rule.catch_up, rule.grace)
        ahead = self._clock.wall_clock_jump() if not self._store.traits.shared else 0.0
        tasks = tuple(
            task_for_window(record.name, stored, rule, window, missed=window < on_time, ahead=ahead)
            for window in windows.run
        )
        next_at = None if windows.next_at is None else to_ms(windows.next_at)
        nominal = tuple(map(to_ms, windows.run))
        fire = FireRequest(record.name, record.rev, tasks, next_at, nominal[-1] if nominal else None)
        return _Decision(record, fire, nominal, windows.skipped)

    # -- windows that do not run

    async def _account(self, fired: Sequence[_Decision]) -> None:
        """They are told, and counted. A window whose key an earlier run still holds has added nothing."""
        keyed = [task.uuid for each in fired for task in each.fire.tasks if task.unique is not None]
        found = await self._store.get(keyed) if keyed else ()
        absent = {uuid for uuid, record in zip(keyed, found, strict=True) if record is None}
        self._logs.tasks_added([task for each in fired for task in each.fire.tasks if task.uuid not in absent])
        for each in fired:
            if each.missed or any(task.uuid in absent for task in each.fire.tasks):
                await self._skip(each, absent)

    async def _skip(self, each: _Decision, absent: set[str]) -> None:
        name, tasks = each.fire.name, each.fire.tasks
        ran = [at for at, task in zip(each.windows, tasks, strict=True) if task.uuid not in absent]
        record = (await self._records()).get(name)
        overlaps = len(tasks) - len(ran)
        if record is not None:  # one that ran and is not kept is absent, too
            overlaps = min(overlaps, max(0, len(tasks) - (record.runs - each.before.runs)))
        self._logs.windows_skipped(name, "grace", each.missed)
        self._logs.windows_skipped(name, "overlap", overlaps)
        for _ in range(_TRIES if overlaps or each.missed else 0):  # the count is for people; the log has it, too
            if record is None:
                return
            stored = with_skipped(with_skipped(decode_rule(record), "grace", each.missed), "overlap", overlaps)
            last_at = record.last_at
            if overlaps and last_at == each.fire.last_at:  # the last one that ran, not the last that might have
                last_at = ran[-1] if ran else each.before.last_at
            if (await self._store.put_schedules([replace(record, rule=encode_rule(stored), last_at=last_at)]))[0]:
                return
            record = (await self._records()).get(name)
