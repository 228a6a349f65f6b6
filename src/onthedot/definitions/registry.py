"""All definitions of an app or a scheduler: its sources by name, and its schedules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from onthedot.codec import Caps
from onthedot.definitions.consumers import BaseTaskConsumer, ConsumerDefinition
from onthedot.definitions.functions import FunctionDefinition
from onthedot.definitions.new_task import TaskOwner
from onthedot.definitions.remote import RemoteDefinition
from onthedot.definitions.sources import Source, Sources, check_function
from onthedot.errors import BadLimit, BadSchedule, DeclarationError, DuplicateTask
from onthedot.model.executor_names import BUILT_IN
from onthedot.model.limits import check_shared_lanes
from onthedot.model.options import ResolvedOptions, TaskOptions, resolve
from onthedot.model.task import check_name
from onthedot.schedules.cron import Zone, parse_zone
from onthedot.schedules.definition import ScheduleDefinition
from onthedot.schedules.rules import as_schedule
from onthedot.stores.contract import Limit

_DEFAULT_CAPS = Caps()
_MAX_REMOTES = 1000  # in the cache: names may come from outside


class DefinitionRegistry:
    """Checks definitions and keeps them.

    defaults: options of every source that does not set them
    tz: the zone of schedules that name none
    caps: the largest arguments and results
    executors: names of the user's own executors
    """

    def __init__(
        self,
        defaults: TaskOptions | None = None,
        tz: Zone = "UTC",
        caps: Caps = _DEFAULT_CAPS,
        executors: Iterable[str] = (),
    ) -> None:
        self.owner: TaskOwner = TaskOwner()
        self.sources: Sources = Sources()
        self.schedules: dict[str, ScheduleDefinition] = {}
        self.consumers: dict[str, ConsumerDefinition] = {}  # those of `replace_consumers`
        self.tz: Zone = tz
        self.before_register: Callable[[Source], None] | None = None  # the runtime's; it may refuse by raising
        self.defaults: TaskOptions = defaults or {}
        self.default_options: ResolvedOptions = resolve("App(defaults=…)", self.defaults)
        self._caps = caps
        self._executors = (*BUILT_IN, *executors)
        self._remotes: dict[str, RemoteDefinition] = {}
        self._locations: dict[str, str] = {}
        self._shared_lanes: dict[str, Limit] = {}  # as the first source that uses one defines it
        parse_zone(tz)  # refuses an unknown one

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
        location = _location(function)
        where = f"task {own_name!r} ({location})"
        check_function(function, where, streams=True)
        if isinstance(aliases, str):
            raise DeclarationError(f"{where}: aliases must be a list of names, not the string {aliases!r}")
        names = [_checked(each, where) for each in (own_name, *aliases)]
        resolved = resolve(where, self.defaults, options)
        self._check_executor(resolved, where)
        try:
            definition = FunctionDefinition(self.owner, function, own_name, resolved, self._caps)
        except BadLimit as error:
            raise BadLimit(f"{where}: {error}") from None
        rule = None if schedule is None else self._schedule(definition, schedule, where)
        self._register(definition, names, location, rule)
        return definition

    def companion(self, source: Source, names: list[str], of: FunctionDefinition, own_slots: int) -> None:
        """Adds a source that comes with a task, such as the coordinator of its batches.

        names: the first is its own
        own_slots: how many of its tasks run at once, beside those of the task, which may hold all other slots
        """
        self._register(source, names, self._locations[of.name], None, own_slots)

    def agent(self, source: Source, names: list[str], location: str) -> None:
        """Adds the source of an agent. names: the first is its own."""
        self._check_executor(source.options, f"agent {source.name!r}")
        self._register(source, names, location, None)

    def remove_agent(self, names: Iterable[str]) -> None:
        """Forgets the source of an agent; its names are free."""
        for name in names:
            self._locations.pop(name, None)
            self.sources.remove(name)

    def consumer(self, consumer: BaseTaskConsumer) -> None:
        if isinstance(consumer, type) or not isinstance(consumer, BaseTaskConsumer):
            raise DeclarationError(f"app.register() takes a consumer instance, not {consumer!r}")
        location = _location(type(consumer))
        where = f"consumer {type(consumer).__name__} ({location})"
        name = _checked(consumer.name, where)
        definition = ConsumerDefinition(consumer, self.defaults, self.owner)
        self._check_executor(definition.options, where)
        self._register(definition, [name], location, definition.schedule_definition(self.tz))

    def replace_consumers(self, consumers: Mapping[str, BaseTaskConsumer]) -> None:
        """Takes the consumers of a TaskConsumerRegistry, which has checked them; those that are gone there go here."""
        for name in [name for name in self.consumers if name not in consumers]:
            del self.consumers[name]
            self.remove(name)
        for name, consumer in consumers.items():
            known = self.consumers.get(name)
            if known is None or known.consumer is not consumer:
                definition = self.consumers[name] = ConsumerDefinition(consumer, owner=self.owner)
                schedule = definition.schedule_definition()
                self.schedules.pop(name, None)
                if schedule is not None:
                    self.schedules[name] = schedule
                self.sources.put(definition)

    def remove(self, name: str) -> None:
        """Forgets a source and its schedule."""
        self.schedules.pop(name, None)
        self.sources.remove(name)

    def by_name(self, name: str) -> FunctionDefinition | RemoteDefinition:
        """The definition that adds tasks of this name, whether its code is known here or not."""
        source = self.sources.get(name)
        if isinstance(source, FunctionDefinition):
            return source
        if isinstance(source, ConsumerDefinition):
            return source.as_remote()
        return self._remote(check_name(name, "name"))

    def consumer_by_name(self, name: str) -> ConsumerDefinition | RemoteDefinition:
        """The definition that makes new tasks of a Task: the consumer, or a remote source of this name."""
        source = self.sources.get(name)
        return source if isinstance(source, ConsumerDefinition) else self._remote(name)

    def _remote(self, name: str) -> RemoteDefinition:
        known = self._remotes.get(name)
        if known is None:
            if len(self._remotes) >= _MAX_REMOTES:
                self._remotes.clear()
            options = resolve(f"task {name!r}", self.defaults)
            known = self._remotes[name] = RemoteDefinition(self.owner, name, options)
        return known

    def limits(self) -> list[Limit]:
        """The limits of the code: concurrency, rates and lanes, as the store keeps them."""
        return [limit for name, source in self.sources.items() for limit in source.limits(name)]

    def _check_executor(self, options: ResolvedOptions, where: str) -> None:
        if options.executor is not None and options.executor not in self._executors:
            known = ", ".join(self._executors)
            raise DeclarationError(f"{where}: no executor {options.executor!r}; there are {known}")

    def _register(
        self,
        source: Source,
        names: list[str],
        location: str,
        schedule: ScheduleDefinition | None,
        own_slots: int = 0,
    ) -> None:
        for name in names:
            if name in self._locations:
                raise DuplicateTask(
                    f"task {name!r} is declared twice: {self._locations[name]} and {location}; give one of them name=…"
                )
        check_shared_lanes(self._shared_lanes, source.name, source.limits(source.name))
        for name in names:
            self._locations[name] = location
        if schedule is not None:
            self.schedules[source.name] = schedule
        if self.before_register is not None:
            self.before_register(source)
        self.sources.put(source, *names[1:], own_slots=own_slots)

    def _schedule(self, definition: FunctionDefinition, schedule: object, where: str) -> ScheduleDefinition:
        try:
            rule = as_schedule(schedule, self.tz)
        except BadSchedule as error:
            raise BadSchedule(f"{where}: {error}") from None
        args: Mapping[str, Any] = rule.args or {}
        missing = [name for name in definition.codec.required if name not in args]
        if missing:
            raise BadSchedule(f"{where}: the schedule has no value for {', '.join(missing)}; give it args={{…}}")
        return ScheduleDefinition(definition.name, rule, definition.new_task((), args))


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
