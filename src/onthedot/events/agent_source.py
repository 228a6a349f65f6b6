"""An agent as a source of the engine: decodes events, calls the code, publishes results, classifies errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, cast, get_args, get_origin

from onthedot.codec.annotations import hints_of, signature_of
from onthedot.codec.body import Headers, Undecodable
from onthedot.codec.untyped import decode_untyped_result, encode_untyped_result
from onthedot.definitions.new_task import TaskOwner
from onthedot.definitions.sources import module_of
from onthedot.errors import DeclarationError, Snooze
from onthedot.events.agent_checks import REFUSED_OPTIONS, consumed_types
from onthedot.events.agent_errors import AgentErrors
from onthedot.events.agents import BaseAgent, FunctionAgent
from onthedot.events.cloudevents import event_parts
from onthedot.events.event import Event, with_origin
from onthedot.events.event_types import TypePattern
from onthedot.events.payloads import payload_reader
from onthedot.events.received_records import StoredRecord, decode_event_body, source_of
from onthedot.events.settings import Events
from onthedot.events.throttle import Throttle
from onthedot.model.context import RunState, current_run
from onthedot.model.event_origin import EventOrigin
from onthedot.model.executor_names import ASYNC, THREAD
from onthedot.model.limits import LimitDefinitions, Rate
from onthedot.model.options import ResolvedOptions, TaskOptions, resolve
from onthedot.stores.contract import Limit

EVENT_FIELDS = ("key", "type", "aggregate_id", "aggregate_type", "correlation_id", "topic")
"""The fields of an event by which limits and labels of an agent may go."""


@dataclass(frozen=True)
class AgentHost:
    """The app in which an agent runs.

    now: ms, by the clock of the process
    on_throttled: an agent's sources start nothing for so many ms; wakes the worker then
    """

    app: str
    owner: TaskOwner
    settings: Callable[[], Events]
    now: Callable[[], float]
    on_throttled: Callable[[str, Collection[str], float], object]
    defaults: TaskOptions


def check_agent_options(agent: BaseAgent) -> None:
    """DeclarationError for options of tasks that cannot work."""
    _limits(agent, _options(agent, {}))


class AgentSource:
    """The source ``agent.<id>``. Implements `Source`.

    aliases: former ids, whose tasks it runs, too
    """

    def __init__(self, agent: BaseAgent, aliases: Sequence[str], host: AgentHost) -> None:
        self.agent = agent
        self.host = host
        self.name: str = source_of(agent.id)
        self.aliases: Sequence[str] = tuple(aliases)
        self.names: list[str] = [self.name, *map(source_of, aliases)]
        code = agent.function if isinstance(agent, FunctionAgent) else type(agent)
        self.module: str = module_of(code)
        self.owner: TaskOwner = host.owner
        self.options: ResolvedOptions = _options(agent, host.defaults)
        self.limit_definitions: LimitDefinitions = _limits(agent, self.options)
        self.is_async: bool = inspect.iscoroutinefunction(agent.process)
        self.call: Callable[[dict[str, Any]], object] = self._call_async if self.is_async else self._call_sync
        self.throttle: Throttle = Throttle(host.now, self._on_pause)
        self._errors = AgentErrors(agent, self.options, self.throttle)
        self._check_executor()

    # -- what it receives

    @property
    def group(self) -> str:
        """The consumer group of its subscriptions."""
        return f"{self.host.app}.{self.agent.id}"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that its subscriptions read."""
        if self.agent.topics:
            return tuple(dict.fromkeys(self.agent.topics))
        types = consumed_types(self.agent)
        assert types is not None
        return self.host.settings().routes.topics_of(types)

    @cached_property
    def _patterns(self) -> tuple[TypePattern, ...] | None:
        types = consumed_types(self.agent)
        return None if types is None else tuple(map(TypePattern.of, types))

    @cached_property
    def consumes(self) -> Callable[[str], bool]:
        """Whether events of a type are for it."""
        return lru_cache(maxsize=1024)(self._matches)  # most records are of few types

    def _matches(self, event_type: str) -> bool:
        patterns = self._patterns
        return patterns is None or any(pattern.matches(event_type) for pattern in patterns)

    @cached_property
    def has_condition(self) -> bool:
        """Whether `accepts` must be asked."""
        accepts = self.agent.accepts
        return getattr(accepts, "__func__", accepts) is not BaseAgent.accepts

    @cached_property
    def read_payload(self) -> Callable[[bytes], Any]:
        """Decodes a payload by the annotation of `process`. Raises ValueError."""
        return payload_reader(payload_annotation(self.agent))

    # -- for the engine

    @property
    def executor(self) -> str:
        return self.options.executor or (ASYNC if self.is_async else THREAD)

    def max_running(self) -> int | None:
        return 0 if self.throttle.left() else None

    def limits(self, name: str) -> list[Limit]:
        return self.limit_definitions.to_limits(name)

    def decode(self, body: bytes) -> tuple[dict[str, Any], Headers]:
        record, headers = decode_event_body(body)
        return {"event": self._event(record)}, headers

    def encode(self, value: object) -> bytes:
        return encode_untyped_result(value)

    def decode_result(self, data: bytes) -> object:
        return decode_untyped_result(data)

    def _event(self, record: StoredRecord) -> Event[Any]:
        if record.problem:
            raise Undecodable(record.problem)
        try:
            parts = event_parts(record.texts, record.place)
            return parts.event(parts.payload(self.read_payload))
        except ValueError as error:
            raise Undecodable(f"event {record.event} of agent {self.agent.id!r}: {error}") from error

    # -- running

    async def _call_async(self, arguments: dict[str, Any]) -> None:
        event: Event[Any] = arguments["event"]
        run = self._begin(event)
        try:
            self._publish(run, event, await self.agent.process(event))
        except Exception as error:
            self._errors.decide(run, event, error)
            raise

    def _call_sync(self, arguments: dict[str, Any]) -> None:
        event: Event[Any] = arguments["event"]
        run = self._begin(event)
        try:
            self._publish(run, event, self.agent.process(event))
        except Exception as error:
            self._errors.decide(run, event, error)
            raise

    def _begin(self, event: Event[Any]) -> RunState:
        """Raises Snooze during a pause: the task was claimed before it."""
        run = current_run()
        assert run is not None
        if self.throttle.left():
            raise Snooze(self.throttle.wait() / 1000)
        history = run.record.history
        run.event_origin = EventOrigin(
            run.record.uuid,
            history.revives,
            correlation_id=event.correlation_id,
            causation_id=event.id,
            retries=history.retries,
        )
        return run

    def _publish(self, run: RunState, event: Event[Any], result: object) -> None:
        """Publishes what `process` has returned, in the step that ends the task."""
        if result is None:
            return
        events = [self._caused_by(event, each, run) for each in _events(result, self.agent)]
        if events:
            run.context.publish(*events)

    def _caused_by(self, cause: Event[Any], event: Event[Any], run: RunState) -> Event[Any]:
        """An event that was made outside of the task knows nothing of the event that is handled."""
        if event.causation_id is not None:
            return event
        correlation_id = event.correlation_id
        if correlation_id == event.id:
            correlation_id = cause.correlation_id
        return with_origin(
            event,
            correlation_id=correlation_id,
            causation_id=cause.id,
            retries=event.retries or run.record.history.retries,
        )

    def _on_pause(self, ms: float) -> None:
        self.host.on_throttled(self.agent.id, self.names, ms)

    def _check_executor(self) -> None:
        where = f"agent {self.agent.id!r}"
        if self.is_async and self.options.executor == THREAD:
            raise DeclarationError(f"{where}: an async process runs on the event loop, not in a thread")
        if not self.is_async and self.options.executor == ASYNC:
            raise DeclarationError(
                f"{where}: executor='async' takes an `async def process`; a plain one would hold up the event loop and "
                "all that runs on it: leave executor out, and it runs in a thread"
            )


def payload_annotation(agent: BaseAgent) -> Any:
    """The type of the payload, by the annotation of `process`; Any: it has none."""
    first = next(iter(signature_of(agent.process).parameters))
    annotation = hints_of(agent.process).get(first, Event)
    if annotation is Event or annotation is Any:
        return Any
    if get_origin(annotation) is Event:
        return get_args(annotation)[0]
    raise DeclarationError(
        f"process of agent {agent.id!r}: {first} is annotated as {annotation!r}; write Event, or Event[…] with the "
        "type of the payload"
    )


def _options(agent: BaseAgent, defaults: TaskOptions) -> ResolvedOptions:
    """Its own, on top of those of the app that are for agents, too."""
    given = {name: value for name, value in defaults.items() if name not in (*REFUSED_OPTIONS, "executor")}
    given |= {name: getattr(agent, name) for name in TaskOptions.__annotations__ if hasattr(agent, name)}
    return resolve(f"agent {agent.id!r}", cast("TaskOptions", given))


def _limits(agent: BaseAgent, options: ResolvedOptions) -> LimitDefinitions:
    for limit in options.limits:
        if isinstance(limit, Rate) and isinstance(limit.cost, str):
            raise DeclarationError(f"agent {agent.id!r}: cost={limit.cost!r} must be a number: no field of an event is")
    name = source_of(agent.id)
    return LimitDefinitions(name, options.concurrency, options.rate_limit, options.limits, EVENT_FIELDS)


def _events(result: Any, agent: BaseAgent) -> Sequence[Event[Any]]:
    several: Sequence[Any] = (result,)
    if isinstance(result, list | tuple):
        several = cast("Sequence[Any]", result)
    for each in several:
        if not isinstance(each, Event):
            kind = type(each).__name__
            raise TypeError(f"process of agent {agent.id!r} returned {kind}; return an Event, a list of them, or None")
    return several
