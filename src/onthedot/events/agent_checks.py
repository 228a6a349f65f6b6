"""The rules for agents, checked when they are registered."""
# An agent is a user's object, which may be anything.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from onthedot.clock.durations import to_duration_ms
from onthedot.codec.annotations import signature_of
from onthedot.definitions.sources import check_function
from onthedot.errors import DeclarationError
from onthedot.events.agents import BaseAgent, FunctionAgent
from onthedot.events.event_types import TypePattern, check_type
from onthedot.events.topic_names import check_topic
from onthedot.model.executor_names import PROCESS

ALL = "*"  # `consumes`: every type, also of records that are no events
RESERVED_IDS = ("callback",)  # the group of the callback service
_ID = re.compile(r"[a-z0-9][a-z0-9_]{0,99}")
REFUSED_OPTIONS = {
    "unique": "an event is handled once, by its id",
    "unique_for": "an event is handled once, by its id",
    "on_conflict": "an event is handled once, by its id",
    "max_pending": "max_in_flight bounds the events that are received",
}


def canonical_form(name: str) -> str:
    """A name of an agent without its variations: trimmed, in lower case, with ``_`` for ``-``.

    >>> canonical_form(" World-Builder ")
    'world_builder'
    """
    return name.strip().lower().replace("-", "_")


def check_agent(agent: object) -> BaseAgent:
    """The agent itself; DeclarationError for one that could not work. Options of tasks are checked apart."""
    if isinstance(agent, type):
        raise DeclarationError(f"register() takes an agent, not a class: register({agent.__name__}())")
    if not isinstance(agent, BaseAgent):
        raise DeclarationError(
            f"register() takes a BaseAgent, not {type(agent).__name__}; a function becomes one by @agent(…)"
        )
    _check_id(agent.id, f"id of {type(agent).__name__}")
    where = f"agent {agent.id!r}"
    _check_names(agent.aliases, f"{where}: aliases")
    _check_consumes(agent, where)
    _check_functions(agent, where)
    if agent.fails_as is not None:
        check_type(agent.fails_as)
    if not isinstance(agent.ordered, bool):
        raise DeclarationError(f"{where}: ordered must be True or False, not {agent.ordered!r}")
    most = agent.max_in_flight
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise DeclarationError(f"{where}: max_in_flight must be a whole number from 1, not {most!r}")
    _check_duration(agent.give_up, f"{where}: give_up")
    _check_options(agent, where)
    return agent


def check_aliases(aliases: Iterable[str], where: str) -> tuple[str, ...]:
    """Aliases in canonical form."""
    forms = tuple([canonical_form(alias) for alias in _check_names(aliases, f"{where}: aliases")])
    for form in forms:
        _check_id(form, f"{where}: alias")
    return forms


def consumed_types(agent: BaseAgent) -> tuple[str, ...] | None:
    """Types and patterns that it consumes; None: all."""
    if agent.consumes == ALL:
        return None
    if isinstance(agent.consumes, str):
        return (agent.consumes,)
    return tuple(agent.consumes)


def location_of(agent: BaseAgent) -> str:
    """Where its code is, for people."""
    code = agent.function if isinstance(agent, FunctionAgent) else type(agent)
    return f"{code.__module__}.{code.__qualname__}"


def _check_id(value: object, what: str) -> None:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        advice = ""
        if isinstance(value, str) and _ID.fullmatch(canonical_form(value)):
            advice = f"; write {canonical_form(value)!r}"
        raise DeclarationError(f"{what} {value!r} is not the name of an agent: 1 to 100 of a-z 0-9 _{advice}")
    if value in RESERVED_IDS:
        raise DeclarationError(f"{what} {value!r} is reserved: it is the consumer group of the callback service")


def _check_names(names: object, what: str) -> Sequence[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise DeclarationError(f"{what} must be a list of names, not {names!r}")
    found: list[str] = []
    for name in cast("Iterable[object]", names):
        if not isinstance(name, str):
            raise DeclarationError(f"{what} must be a list of names, not {names!r}")
        found.append(name)
    return found


def _check_consumes(agent: BaseAgent, where: str) -> None:
    topics = _check_names(agent.topics, f"{where}: topics")
    for topic in topics:
        check_topic(topic, f"{where}: topic")
    if agent.consumes == ALL:
        if not topics:
            raise DeclarationError(f'{where}: consumes="*" needs topics = ("…",), which it reads')
        return
    if not isinstance(agent.consumes, str):
        _check_names(agent.consumes, f"{where}: consumes")
    types = consumed_types(agent)
    if not types:
        raise DeclarationError(f'{where}: consumes is empty; name the types that it handles, as "Shop.Order.Placed"')
    for each in types:
        TypePattern.of(each)  # BadEvent for a text that no type can match


def _check_functions(agent: BaseAgent, where: str) -> None:
    process: Any = agent.process
    if getattr(process, "__func__", process) is BaseAgent.process:
        raise DeclarationError(f"{where} has no process(self, event): define it, as an async def or a plain function")
    if not callable(process):
        raise DeclarationError(f"{where}: process is {process!r}, which cannot be called")
    check_function(process, f"process of {where}")
    try:
        signature_of(process).bind(object())
    except TypeError as error:
        raise DeclarationError(f"process of {where} takes one argument, the event: {error}") from None
    for name in ("accepts", "classify_error"):
        function = getattr(agent, name)
        if not callable(function):
            raise DeclarationError(f"{where}: {name} is {function!r}, which cannot be called")
        if inspect.iscoroutinefunction(function):
            raise DeclarationError(f"{where}: {name} is async; it must be a plain function, quick and without I/O")


def _check_duration(value: Any, what: str) -> None:
    try:
        ms = to_duration_ms(value, what)
    except (TypeError, ValueError) as error:
        raise DeclarationError(str(error)) from None
    if ms <= 0:
        raise DeclarationError(f"{what} must be more than 0 seconds, not {value!r}")


def _check_options(agent: BaseAgent, where: str) -> None:
    for name, reason in REFUSED_OPTIONS.items():
        if getattr(agent, name, None) is not None:
            raise DeclarationError(f"{where}: {name} is not for agents: {reason}")
    if getattr(agent, "executor", None) == PROCESS:
        raise DeclarationError(
            f"{where}: an agent runs on the event loop or in a thread; for work in a process let it call a task with "
            'executor="process" by ctx.run'
        )
