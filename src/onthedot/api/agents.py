"""Declaring the agents of an app."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Unpack

from onthedot.events.agent_registry import AgentRegistry
from onthedot.events.agents import AgentAttributes, FunctionAgent
from onthedot.events.event import Event

F = TypeVar("F", bound=Callable[[Event[Any]], Any])


class AppAgents:
    """The part of `App` that declares agents."""

    agents: AgentRegistry
    """The agents of this app."""

    def agent(
        self,
        id: str,  # noqa: A002 - as the attribute is called
        *,
        consumes: Sequence[str] | str,
        **attributes: Unpack[AgentAttributes],
    ) -> Callable[[F], F]:
        """Declares a function as an agent, as a decorator; it remains a plain function.

        Args:
            id: Name of the agent: 1 to 100 of ``a-z 0-9 _``.
            consumes: Types of the events that it handles.
            attributes: Other attributes of a `BaseAgent`, such as ``aliases``, ``accepts`` and ``max_retries``.
        """

        def decorate(function: F) -> F:
            self.agents.register(FunctionAgent(function, id, {"consumes": consumes, **attributes}))
            return function

        return decorate
