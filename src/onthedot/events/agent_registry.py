"""The agents of an app, by name."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Protocol

from onthedot.errors import DeclarationError, DuplicateTask, suggestion
from onthedot.events.agent_checks import canonical_form, check_agent, check_aliases, location_of
from onthedot.events.agent_source import check_agent_options
from onthedot.events.agents import BaseAgent


class AgentListener(Protocol):
    """An app that runs the agents of a registry."""

    def agent_registered(self, agent: BaseAgent, aliases: tuple[str, ...]) -> None:
        """May refuse the agent by raising."""
        ...

    def agent_removed(self, agent_id: str) -> None: ...


class AgentRegistry:
    """Agents by id and alias. Names are compared in their canonical form: trimmed, in lower case, ``_`` for ``-``.

    An app has one: ``app.agents``. There is no global one; apps share one by ``App(agents=registry)``.

    >>> class Worldbuilder(BaseAgent):
    ...     id = "worldbuilder"
    ...     aliases = ("world_builder",)
    ...     consumes = ("Genesis.Session.*Requested",)
    ...     async def process(self, event): ...
    >>> registry = AgentRegistry()
    >>> registry.register(Worldbuilder())
    >>> registry.canonical(" World-Builder "), registry.ids
    ('worldbuilder', ('worldbuilder',))
    """

    def __init__(self) -> None:
        self._agents: dict[str, BaseAgent] = {}
        self._aliases: dict[str, str] = {}  # → id
        self._listeners: list[weakref.ref[AgentListener]] = []

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the agents, in the order in which they were registered."""
        return tuple(self._agents)

    def register(self, agent: BaseAgent, aliases: Iterable[str] = ()) -> None:
        """Adds an agent. Apps that run take it over at once.

        Args:
            agent: An instance of a `BaseAgent`.
            aliases: Further names of it, in addition to its attribute `aliases`.
        """
        agent = check_agent(agent)
        where = f"agent {agent.id!r}"
        own = (*check_aliases(agent.aliases, where), *check_aliases(aliases, where))
        names = tuple(dict.fromkeys(name for name in own if name != agent.id))
        for name in (agent.id, *names):
            self._check_free(name, agent)
        check_agent_options(agent)
        if self._agents.get(agent.id) is agent:
            names = (*[name for name in self.aliases_of(agent.id) if name not in names], *names)
            self.unregister(agent.id)
        self._add(agent, names)

    def _check_free(self, name: str, agent: BaseAgent) -> None:
        known = self.find(name)
        if known is not None and known is not agent:
            raise DuplicateTask(
                f"{name!r} is a name of {location_of(known)}, agent {known.id!r}: {location_of(agent)}, agent "
                f"{agent.id!r}, needs another"
            )

    def _add(self, agent: BaseAgent, names: tuple[str, ...]) -> None:
        notified: list[AgentListener] = []
        try:
            for listener in self._live_listeners():
                listener.agent_registered(agent, names)
                notified.append(listener)
        except BaseException:
            for listener in notified:
                listener.agent_removed(agent.id)
            raise
        self._agents[agent.id] = agent
        self._aliases |= dict.fromkeys(names, agent.id)

    def canonical(self, name: str) -> str:
        """Returns the id that a name stands for; the name in its canonical form, if there is no such agent.

        Args:
            name: An id or alias, in any form.
        """
        form = canonical_form(name)
        return self._aliases.get(form, form)

    def find(self, name: str) -> BaseAgent | None:
        """Returns an agent; None: there is none of this name.

        Args:
            name: An id or alias, in any form.
        """
        return self._agents.get(self.canonical(name))

    def aliases_of(self, name: str) -> tuple[str, ...]:
        """Returns the other names of an agent, in canonical form.

        Args:
            name: An id or alias of it.
        """
        agent_id = self.canonical(name)
        return tuple([alias for alias, target in self._aliases.items() if target == agent_id])

    def unregister(self, name: str) -> None:
        """Removes an agent. Its pending tasks wait until it is registered again.

        Args:
            name: An id or alias of it.
        """
        agent_id = self.canonical(name)
        if agent_id not in self._agents:
            raise KeyError(f"no agent {name!r}{suggestion(agent_id, self.ids)}")
        for alias in self.aliases_of(agent_id):
            del self._aliases[alias]
        del self._agents[agent_id]
        for listener in self._live_listeners():
            listener.agent_removed(agent_id)

    def clear(self) -> None:
        """Removes all agents."""
        for agent_id in self.ids:
            self.unregister(agent_id)

    def __len__(self) -> int:
        return len(self._agents)

    def __bool__(self) -> bool:
        return True  # an empty registry is one, too

    def listen(self, listener: AgentListener) -> None:
        """Tells an app of every agent, now and later, as long as the app lives."""
        for agent in self._agents.values():
            listener.agent_registered(agent, self.aliases_of(agent.id))
        self._listeners.append(weakref.ref(listener))

    def _live_listeners(self) -> list[AgentListener]:
        found = [listener for each in self._listeners if (listener := each()) is not None]
        self._listeners = [each for each in self._listeners if each() is not None]
        return found


def check_registry(agents: object) -> AgentRegistry:
    """The registry of ``App(agents=…)``; DeclarationError for anything else."""
    if not isinstance(agents, AgentRegistry):
        raise DeclarationError(f"agents={agents!r} is of type {type(agents).__name__}; pass an AgentRegistry()")
    return agents
