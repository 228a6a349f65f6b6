"""All that an app declares: its sources by name, and its schedules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from onthedot.codec import Caps
from onthedot.definitions.consumers import BaseTaskConsumer, ConsumerSource
from onthedot.definitions.functions import Declared
from onthedot.definitions.sources import Source
from onthedot.errors import BadLimit, BadSchedule, DeclarationError, DuplicateTask
from onthedot.model.limits import share
from onthedot.model.options import Options, TaskOptions, resolve
from onthedot.model.task import check_name
from onthedot.runtime.runtime import Core
from onthedot.runtime.user_code import goes_on
from onthedot.schedules.cron import Zone, zone_of
from onthedot.schedules.rules import as_schedule
from onthedot.schedules.stored_rule import Plan
from onthedot.stores.contract import Limit


class Declarations:
    def __init__(self, core: Core, defaults: TaskOptions, tz: Zone, caps: Caps) -> None:
        self._core = core
        self.defaults = defaults
        self._tz = tz
        self._caps = caps
        self._places: dict[str, str] = {}
        self._shared: dict[str, Limit] = {}  # lanes, as all who share them say it
        core.bounds.other = resolve("App(defaults=…)", defaults).max_pending
        zone_of(tz)  # refuses one that is not there

    def function(
        self,
        function: Callable[..., Any],
        name: str | None,
        aliases: Iterable[str],
        schedule: object,
        options: TaskOptions,
    ) -> Declared:
        if not callable(function):
            raise DeclarationError(f"@app.task goes on a function, not on {function!r}")
        own_name = name if name is not None else getattr(function, "__name__", type(function).__name__)
        place = _place(function)
        where = f"task {own_name!r} ({place})"
        if isinstance(aliases, str):
            raise DeclarationError(f"{where}: aliases must be a list of names, not the string {aliases!r}")
        names = [_checked(each, where) for each in (own_name, *aliases)]
        resolved = resolve(where, self.defaults, options)
        self._check_executor(resolved, where)
        try:
            declared = Declared(self._core, function, own_name, resolved, self._caps)
        except BadLimit as error:
            raise BadLimit(f"{where}: {error}") from None
        plan = None if schedule is None else self._plan(declared, schedule, where)
        self._put(declared, names, place, plan)
        return declared

    def _check_executor(self, options: Options, where: str) -> None:
        known = ("async", "thread", "process", *self._core.own_executors)
        if options.executor is not None and options.executor not in known:
            raise DeclarationError(f"{where}: no executor {options.executor!r}; there are {', '.join(known)}")

    def consumer(self, consumer: BaseTaskConsumer) -> None:
        if isinstance(consumer, type) or not isinstance(consumer, BaseTaskConsumer):
            raise DeclarationError(f"app.register() takes a consumer instance, not {consumer!r}")
        place = _place(type(consumer))
        where = f"consumer {type(consumer).__name__} ({place})"
        name = _checked(consumer.name, where)
        source = ConsumerSource(consumer, self.defaults)
        self._check_executor(source.options, where)
        self._put(source, [name], place, source.plan(self._core.client, self._tz))

    def _put(self, source: Source, names: list[str], place: str, plan: Plan | None) -> None:
        for name in names:
            if name in self._places:
                raise DuplicateTask(
                    f"task {name!r} is declared twice: {self._places[name]} and {place}; give one of them name=…"
                )
        share(self._shared, source.name, source.limits(source.name))
        for name in names:
            self._places[name] = place
        if plan is not None:
            self._core.plans[source.name] = plan
        self._core.service.declared(source.name, source.module)
        self._core.sources.put(source, *names[1:])
        goes_on()
        self._core.logs.scheduler.info("Task registered: %s", source.name)

    def _plan(self, declared: Declared, schedule: object, where: str) -> Plan:
        try:
            rule = as_schedule(schedule, self._tz)
        except BadSchedule as error:
            raise BadSchedule(f"{where}: {error}") from None
        args: Mapping[str, Any] = rule.args or {}
        missing = [name for name in declared.codec.required if name not in args]
        if missing:
            raise BadSchedule(f"{where}: the schedule has no value for {', '.join(missing)}; give it args={{…}}")
        return Plan(declared.name, rule, declared.make((), args))


def _checked(name: str, where: str) -> str:
    try:
        return check_name(name, "name")
    except ValueError as error:
        raise DeclarationError(f"{where}: {error}") from None


def _place(thing: Any) -> str:
    try:
        file = inspect.getsourcefile(thing) or "?"
        line = inspect.getsourcelines(thing)[1]
    except (OSError, TypeError):  # typed in at a prompt, or not Python
        return f"{getattr(thing, '__module__', '?')}.{getattr(thing, '__qualname__', '?')}"
    return f"{file}:{line}"
