"""All that an app declares: its sources by name, and its schedules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from onthedot.codec import Caps
from onthedot.definitions.consumers import BaseTaskConsumer, ConsumerDefinition
from onthedot.definitions.functions import FunctionDefinition
from onthedot.definitions.sources import Source
from onthedot.errors import BadLimit, BadSchedule, DeclarationError, DuplicateTask
from onthedot.model.limits import check_shared_lanes
from onthedot.model.options import ResolvedOptions, TaskOptions, resolve
from onthedot.model.task import check_name
from onthedot.runtime.runtime import Runtime
from onthedot.runtime.user_code import extend_import_deadline
from onthedot.schedules.cron import Zone, parse_zone
from onthedot.schedules.definition import ScheduleDefinition
from onthedot.schedules.rules import as_schedule
from onthedot.stores.contract import Limit


class DefinitionRegistry:
    def __init__(self, runtime: Runtime, defaults: TaskOptions, tz: Zone, caps: Caps) -> None:
        self._runtime = runtime
        self.defaults = defaults
        self._tz = tz
        self._caps = caps
        self._places: dict[str, str] = {}
        self._shared: dict[str, Limit] = {}  # lanes, as all who share them say it
        runtime.pending_limits.other = resolve("App(defaults=…)", defaults).max_pending
        parse_zone(tz)  # refuses one that is not there

    def function(
        self,
        function: Callable[..., Any],
        name: str | None,
        aliases: Iterable[str],
        schedule: object,
        options: TaskOptions,
    ) -> FunctionDefinition:
        if not callable(function):
            raise DeclarationError(f"@app.task goes on a function, not on {function!r}")
        own_name = name if name is not None else getattr(function, "__name__", type(function).__name__)
        place = _location(function)
        where = f"task {own_name!r} ({place})"
        if isinstance(aliases, str):
            raise DeclarationError(f"{where}: aliases must be a list of names, not the string {aliases!r}")
        names = [_checked(each, where) for each in (own_name, *aliases)]
        resolved = resolve(where, self.defaults, options)
        self._check_executor(resolved, where)
        try:
            declared = FunctionDefinition(self._runtime, function, own_name, resolved, self._caps)
        except BadLimit as error:
            raise BadLimit(f"{where}: {error}") from None
        plan = None if schedule is None else self._plan(declared, schedule, where)
        self._register(declared, names, place, plan)
        return declared

    def _check_executor(self, options: ResolvedOptions, where: str) -> None:
        known = ("async", "thread", "process", *self._runtime.own_executors)
        if options.executor is not None and options.executor not in known:
            raise DeclarationError(f"{where}: no executor {options.executor!r}; there are {', '.join(known)}")

    def consumer(self, consumer: BaseTaskConsumer) -> None:
        if isinstance(consumer, type) or not isinstance(consumer, BaseTaskConsumer):
            raise DeclarationError(f"app.register() takes a consumer instance, not {consumer!r}")
        place = _location(type(consumer))
        where = f"consumer {type(consumer).__name__} ({place})"
        name = _checked(consumer.name, where)
        source = ConsumerDefinition(consumer, self.defaults)
        self._check_executor(source.options, where)
        self._register(source, [name], place, source.schedule_definition(self._runtime.client, self._tz))

    def _register(self, source: Source, names: list[str], place: str, plan: ScheduleDefinition | None) -> None:
        for name in names:
            if name in self._places:
                raise DuplicateTask(
                    f"task {name!r} is declared twice: {self._places[name]} and {place}; give one of them name=…"
                )
        check_shared_lanes(self._shared, source.name, source.limits(source.name))
        for name in names:
            self._places[name] = place
        if plan is not None:
            self._runtime.schedules[source.name] = plan
        self._runtime.host.ensure_known(source.name, source.module)
        self._runtime.sources.put(source, *names[1:])
        extend_import_deadline()
        self._runtime.logs.scheduler.info("Task registered: %s", source.name)

    def _plan(self, declared: FunctionDefinition, schedule: object, where: str) -> ScheduleDefinition:
        try:
            rule = as_schedule(schedule, self._tz)
        except BadSchedule as error:
            raise BadSchedule(f"{where}: {error}") from None
        args: Mapping[str, Any] = rule.args or {}
        missing = [name for name in declared.codec.required if name not in args]
        if missing:
            raise BadSchedule(f"{where}: the schedule has no value for {', '.join(missing)}; give it args={{…}}")
        return ScheduleDefinition(declared.name, rule, declared.new_task((), args))


def _checked(name: str, where: str) -> str:
    try:
        return check_name(name, "name")
    except ValueError as error:
        raise DeclarationError(f"{where}: {error}") from None


def _location(thing: Any) -> str:
    try:
        file = inspect.getsourcefile(thing) or "?"
        line = inspect.getsourcelines(thing)[1]
    except (OSError, TypeError):  # typed in at a prompt, or not Python
        return f"{getattr(thing, '__module__', '?')}.{getattr(thing, '__qualname__', '?')}"
    return f"{file}:{line}"
