"""The agents of a runtime, as sources of its definitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, TypeAlias

from onthedot.errors import StoreRefused
from onthedot.events.agent_checks import location_of
from onthedot.events.agent_registry import AgentRegistry, check_registry
from onthedot.events.agent_source import AgentHost, AgentSource
from onthedot.events.agents import BaseAgent
from onthedot.events.components import Components
from onthedot.events.subscription import AgentSubscription
from onthedot.stores.capabilities import Outbox, capability

if TYPE_CHECKING:
    from onthedot.runtime.runtime import Runtime

NewSubscription: TypeAlias = Callable[[AgentSource], AgentSubscription]


class LiveSubscriptions:
    """The subscriptions of a running worker. Agents may be registered and removed meanwhile, from any thread."""

    def __init__(self, new_subscription: NewSubscription, components: Components) -> None:
        self._new_subscription = new_subscription
        self._components = components
        self._loop = asyncio.get_running_loop()
        self._by_source: dict[AgentSource, AgentSubscription] = {}
        self._changes: set[asyncio.Task[None]] = set()

    def add(self, source: AgentSource) -> AgentSubscription:
        subscription = self._by_source[source] = self._new_subscription(source)
        return subscription

    def start(self, source: AgentSource) -> None:
        self._loop.call_soon_threadsafe(self._start, source)

    def stop(self, source: AgentSource) -> None:
        self._loop.call_soon_threadsafe(self._stop, source)

    def _start(self, source: AgentSource) -> None:
        self._change(self._components.add(self.add(source)))

    def _stop(self, source: AgentSource) -> None:
        subscription = self._by_source.pop(source, None)
        if subscription is not None:  # otherwise this worker does not run the agent
            self._change(self._components.remove(subscription))

    def _change(self, change: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)


class RuntimeAgents:
    """Runs the agents of a registry. Implements `AgentListener`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.sources: dict[str, AgentSource] = {}  # by id
        self._live: LiveSubscriptions | None = None  # while a worker of this process runs them

    def listen_to(self, agents: AgentRegistry | None) -> AgentRegistry:
        """Runs the agents of this registry; None: of a new one. It returns the registry."""
        registry = AgentRegistry() if agents is None else check_registry(agents)
        registry.listen(self)
        return registry

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
        if self._live is not None and self._is_run(source):
            self._live.start(source)

    def agent_removed(self, agent_id: str) -> None:
        source = self.sources.pop(agent_id)
        self._runtime.registry.remove_agent(source.names)
        if self._live is not None:
            self._live.stop(source)

    def subscribe(self, new_subscription: NewSubscription, components: Components) -> list[AgentSubscription]:
        """The subscriptions of the agents whose tasks this worker runs; those of later agents join the components."""
        self._live = LiveSubscriptions(new_subscription, components)
        return [self._live.add(source) for source in self.sources.values() if self._is_run(source)]

    def _is_run(self, source: AgentSource) -> bool:
        """Whether the worker takes the tasks of this agent."""
        only = self._runtime.config.only_sources
        return only is None or source.name in only

    def unsubscribe(self) -> None:
        """The worker stops."""
        self._live = None

    def check_store(self) -> None:
        """StoreRefused if there are agents and the store cannot keep what they publish.

        The message of `capability` names ``Events(outbox=…)``, which does not help an agent.
        """
        for agent_id in self.sources:
            try:
                capability(self._runtime.store, Outbox, f"agent {agent_id!r}")
            except StoreRefused:
                raise StoreRefused(
                    f"agent {agent_id!r}: this store keeps no events, and an agent needs them in the database of its "
                    "tasks; run it on postgresql:// or sqlite://"
                ) from None

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
