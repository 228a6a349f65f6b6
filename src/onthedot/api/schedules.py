"""``app.schedules`` and ``app.sync.schedules``: schedules are put, read and changed at run time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict, Unpack

from onthedot.api.handles import AsyncTaskHandle, TaskHandle
from onthedot.clock.durations import Duration
from onthedot.codec.untyped import decode_untyped_result
from onthedot.errors import BadSchedule
from onthedot.flows.calls import Call
from onthedot.model.familiar_names import SCHEDULE
from onthedot.model.task import Task, check_name
from onthedot.operations.schedule_info import ScheduleInfo
from onthedot.operations.schedule_preview import PlannedRun
from onthedot.operations.schedules import Infos, Runs
from onthedot.runtime.runtime import Runtime
from onthedot.schedules.cron import Zone
from onthedot.schedules.definition import ScheduleDefinition
from onthedot.schedules.rules import CatchUp, CronSchedule, DailySchedule, Overlap, RuleSchedule, as_schedule
from onthedot.stores.contract import NewTask

__all__ = ["PlannedRun", "ScheduleInfo", "ScheduleOptions", "Schedules", "SyncSchedules"]

_ONE_CALL = ("at", "after", "uuid")  # options that make no sense for the many tasks of a schedule


class ScheduleOptions(TypedDict, total=False):
    """Options of ``put``, as in the …Schedule classes, over which they have precedence."""

    overlap: Overlap
    """While the last run has not ended: "skip" the window, "allow" both to run, or "queue" it."""
    catch_up: CatchUp
    """If several windows are due at once, run the "latest", "all", or the newest only within its `grace` ("none")."""
    grace: Duration
    """How late a window may run with ``catch_up="none"``."""
    jitter: Duration
    """Each run starts later by up to this time; the same delay in every process."""
    start: datetime
    """No window before this aware datetime."""
    end: datetime
    """No window after this aware datetime."""


class PlanRange(TypedDict, total=False):
    """The range of `plan`."""

    hours: float
    """From now on, in hours; 24 by default."""
    until: datetime | None
    """Its end, instead of `hours`."""
    limit: int
    """How many runs at most; 1000 by default."""


class _ScheduleBuilder:
    """The part that the sync and the async class share: the definition of a schedule from arguments."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._tz = runtime.registry.tz

    def _plan(
        self, name: str, call: object, schedule: object, tz: Zone | None, options: ScheduleOptions
    ) -> ScheduleDefinition:
        where = f"schedule {name!r}"
        try:
            check_name(name, "name of the schedule")
        except (TypeError, ValueError) as error:
            raise BadSchedule(str(error)) from None
        for unknown in sorted(options.keys() - ScheduleOptions.__annotations__.keys()):
            known = ", ".join(("tz", *ScheduleOptions.__annotations__))
            advice = SCHEDULE.get(unknown, f"there are: {known}")
            raise BadSchedule(f"{where}: no option {unknown}; {advice}")
        try:
            rule = as_schedule(schedule, self._tz if tz is None else tz)
            if tz is not None and isinstance(rule, CronSchedule | DailySchedule):
                rule = replace(rule, tz=tz)
            if not isinstance(rule, RuleSchedule):
                rule = replace(rule, **options)
        except BadSchedule as error:
            error.args = (f"{where}: {error}",)
            raise
        if isinstance(rule, RuleSchedule):
            raise BadSchedule(
                f"{where}: {rule.rule!r} is a rule of one's own, and code cannot be stored as data: "
                "declare it in code, with @app.schedule(…) or @app.task(schedule=…)"
            )
        if rule.args is not None:
            raise BadSchedule(f"{where}: the arguments are those of the call; leave args={rule.args!r} out")
        return ScheduleDefinition(name, rule, self._task(where, call))

    def _task(self, where: str, call: object) -> NewTask:
        if isinstance(call, Call):
            if wrong := [name for name in _ONE_CALL if name in call.call_options]:
                raise BadSchedule(f"{where}: options({wrong[0]}=…) is for one call; the schedule says when it runs")
            return call.single_task()
        if isinstance(call, Task):  # as a consumer's produce() makes it
            return self._runtime.registry.consumer_by_name(call.source).new_task_from(call, timed=False)
        raise BadSchedule(
            f"{where}: {call!r} is of type {type(call).__name__}; pass a call that is not made, as in send.s('ann')"
        )

    def _decoder(self, source: str) -> Callable[[bytes], Any]:
        known = self._runtime.sources.get(source)
        return decode_untyped_result if known is None else known.decode_result


class Schedules(_ScheduleBuilder):
    """The schedules in the store, those of code and those put at run time. For sync code: ``app.sync.schedules``.

    >>> import asyncio
    >>> from onthedot import App
    >>> app = App("shop", store="memory://")
    >>> @app.task
    ... async def send(to: str) -> None: ...
    >>> info = asyncio.run(app.schedules.put("morning", send.s("ann"), "0 8 * * *", tz="Europe/Berlin"))
    >>> info.rule, info.owner, dict(info.args)
    ('0 8 * * * (Europe/Berlin)', 'data', {'to': 'ann'})
    """

    async def put(
        self, name: str, call: Call[Any] | Task, schedule: object, *, tz: Zone | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:  # fmt: skip
        """Creates or changes a schedule. The same again changes nothing; another call or rule computes a new next run.

        Args:
            name: The name of the schedule.
            call: The call to add: ``send.s("ann")``, or a Task of a consumer.
            schedule: A cron str, timedelta, time, aware datetime, or a rule such as `CronSchedule`.
            tz: Time zone of a cron str or a time; by default that of the app.
            options: See `ScheduleOptions`.
        """
        plan = self._plan(name, call, schedule, tz, options)
        return await self._runtime.portal.run(lambda client: client.operations.schedules.put(plan))

    async def get(self, name: str) -> ScheduleInfo:
        """Returns a schedule.

        Args:
            name: The name of the schedule.
        """
        return await self._runtime.portal.run(lambda client: client.operations.schedules.get(name))

    async def list(self) -> Infos:
        """Returns all schedules, by name."""
        return await self._runtime.portal.run(lambda client: client.operations.schedules.list())

    async def pause(self, name: str, reason: str = "") -> ScheduleInfo:
        """Stops a schedule from firing until `resume`, also after a restart; tasks that it has added run.

        Args:
            name: The name of the schedule.
            reason: Shown to others who look.
        """
        return await self._runtime.portal.run(lambda client: client.operations.schedules.pause(name, reason))

    async def resume(self, name: str) -> ScheduleInfo:
        """Continues a schedule with its next window; those that passed meanwhile are logged and not caught up.

        Args:
            name: The name of the schedule.
        """
        return await self._runtime.portal.run(lambda client: client.operations.schedules.resume(name))

    async def run(self, name: str) -> AsyncTaskHandle[Any]:
        """Runs a schedule now, also a paused one; its next run stays. ``added`` is False if `overlap` forbids it.

        Args:
            name: The name of the schedule.
        """
        ran = await self._runtime.portal.run(lambda client: client.operations.schedules.run(name))
        return AsyncTaskHandle(self._runtime.portal, ran.uuid, self._decoder(ran.source), ran.fresh)

    async def delete(self, name: str) -> None:
        """Deletes a schedule that was put, or whose code is gone. One that code declares raises BadSchedule.

        Args:
            name: The name of the schedule.
        """
        await self._runtime.portal.run(lambda client: client.operations.schedules.delete(name))

    async def plan(self, name: str | None = None, **span: Unpack[PlanRange]) -> Runs:
        """Returns the next runs in order.

        Args:
            name: Only those of this schedule; by default of all active ones.
            span: See `PlanRange`.
        """
        return await self._runtime.portal.run(lambda client: client.operations.schedules.plan(name, **span))


class SyncSchedules(_ScheduleBuilder):
    """``app.schedules`` for sync code: ``app.sync.schedules.pause("nightly")``."""

    def put(
        self, name: str, call: Call[Any] | Task, schedule: object, *, tz: Zone | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:  # fmt: skip
        plan = self._plan(name, call, schedule, tz, options)
        return self._runtime.portal.run_sync(lambda client: client.operations.schedules.put(plan))

    def get(self, name: str) -> ScheduleInfo:
        return self._runtime.portal.run_sync(lambda client: client.operations.schedules.get(name))

    def list(self) -> Infos:
        return self._runtime.portal.run_sync(lambda client: client.operations.schedules.list())

    def pause(self, name: str, reason: str = "") -> ScheduleInfo:
        return self._runtime.portal.run_sync(lambda client: client.operations.schedules.pause(name, reason))

    def resume(self, name: str) -> ScheduleInfo:
        return self._runtime.portal.run_sync(lambda client: client.operations.schedules.resume(name))

    def run(self, name: str) -> TaskHandle[Any]:
        ran = self._runtime.portal.run_sync(lambda client: client.operations.schedules.run(name))
        return TaskHandle(self._runtime.portal, ran.uuid, self._decoder(ran.source), ran.fresh)

    def delete(self, name: str) -> None:
        self._runtime.portal.run_sync(lambda client: client.operations.schedules.delete(name))

    def plan(self, name: str | None = None, **span: Unpack[PlanRange]) -> Runs:
        return self._runtime.portal.run_sync(lambda client: client.operations.schedules.plan(name, **span))
