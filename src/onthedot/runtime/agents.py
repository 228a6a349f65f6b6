"""The agents of a runtime, as sources of its definitions."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from onthedot.errors import StoreRefused
from onthedot.events.agent_checks import location_of
from onthedot.events.agent_source import AgentHost, AgentSource
from onthedot.events.agents import BaseAgent
from onthedot.stores.capabilities import Outbox, capability

if TYPE_CHECKING:
    from onthedot.runtime.runtime import Runtime


class RuntimeAgents:
    """Runs the agents of a registry. Implements `AgentListener`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.sources: dict[str, AgentSource] = {}  # by id

    def agent_registered(self, agent: BaseAgent, aliases: tuple[str, ...]) -> None:
        settings = self._runtime.config.events
        if settings.outbox is not None:
            raise StoreRefused(
                f"agent {agent.id!r}: its tasks and the outbox of Events(outbox=…) are in two databases, which have no "
                "common commit: keep the tasks in the database of the outbox"
            )
        if agent.fails_as is not None:
            settings.check_type(agent.fails_as)
        source = AgentSource(agent, aliases, self._host())
        self._runtime.registry.agent(source, source.names, location_of(agent))
        self.sources[agent.id] = source

    def agent_removed(self, agent_id: str) -> None:
        source = self.sources.pop(agent_id)
        self._runtime.registry.remove_agent(source.names)

    def check_store(self) -> None:
        """StoreRefused if there are agents and the store cannot keep what they publish."""
        for agent_id in self.sources:
            capability(self._runtime.store, Outbox, f"agent {agent_id!r}")

    def _host(self) -> AgentHost:
        runtime = self._runtime
        return AgentHost(
            app=runtime.name,
            owner=runtime.registry.owner,
            settings=lambda: runtime.config.events,
            now=self._now,
            on_throttled=self._on_throttled,
            defaults=runtime.registry.defaults,
        )

    def _now(self) -> float:
        return self._runtime.clock.now()  # another configuration has another clock

    def _on_throttled(self, agent_id: str, sources: Collection[str], ms: float) -> None:
        """From any thread."""
        self._runtime.logs.agent_throttled(agent_id, ms / 1000)
        if self._runtime.worker is not None:
            self._runtime.worker.wake_later(sources, ms)
