"""Makes the components of a runtime: the relay, and what receives events."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from onthedot.errors import DeclarationError
from onthedot.events.bus import Bus
from onthedot.events.bus_connection import BusConnection
from onthedot.events.callbacks import EventSignals, ResultSubscription
from onthedot.events.component_session import ComponentSession, SessionPool
from onthedot.events.components import NO_COMPONENTS, Component, Components
from onthedot.events.end_hints import EndHints
from onthedot.events.outbox_rows import bus_message
from onthedot.events.relay import Relay, RelaySettings
from onthedot.events.store_bus import StoreBus
from onthedot.events.subscription import AgentSubscription
from onthedot.model.component_names import AGENTS, CALLBACK, RELAY
from onthedot.observability.events import Observer
from onthedot.operations.modes import RecentModes
from onthedot.runtime.agents import NewSubscription
from onthedot.runtime.config import RuntimeConfig
from onthedot.runtime.settings import version
from onthedot.stores.capabilities import Outbox, capability
from onthedot.stores.contract import Store

if TYPE_CHECKING:
    from onthedot.runtime.runtime import Runtime

_POLL_WITHOUT_HINTS = 0.05  # seconds


def new_components(runtime: Runtime) -> Components:
    """The components of a runtime whose stores are open on this loop. A store without an outbox has none."""
    outbox = runtime.find_outbox() if runtime.config.has_events else None
    if outbox is None:
        runtime.agents.check_store()
        return NO_COMPONENTS
    factory = ComponentFactory(runtime.config, runtime.outbox_store, outbox, runtime.new_observer())
    components: list[Component] = []
    if RELAY not in runtime.config.without:
        components.append(factory.relay())
    if CALLBACK not in runtime.config.without and (runtime.config.events.results or runtime.event_signals.types):
        components.append(factory.callback_service(runtime.event_signals, runtime.store))
    running = Components(components, factory.connection)
    if AGENTS not in runtime.config.without:
        subscriptions = factory.subscriptions(runtime.store)
        running.all = (*components, *runtime.agents.subscribe(subscriptions, running))
    return running


async def run_callback_service(runtime: Runtime) -> None:
    """The callback service alone, until it is cancelled."""
    runtime.import_included()
    if not (runtime.config.events.results or runtime.event_signals.types):
        raise DeclarationError(f"{runtime.name} receives no results: say Events(results=…), or app.on_event(…)")
    outbox = capability(runtime.outbox_store, Outbox, "CallbackService")
    async with AsyncExitStack() as stack:
        for portal in dict.fromkeys((runtime.portal, runtime.outbox_portal)):
            await portal.connect()
            stack.push_async_callback(portal.disconnect)
        factory = ComponentFactory(runtime.config, runtime.outbox_store, outbox, runtime.new_observer())
        service = factory.callback_service(runtime.event_signals, runtime.store)
        components = Components([service], factory.connection)
        stack.push_async_callback(components.stop)
        await components.start()
        await asyncio.Event().wait()


class ComponentFactory:
    """Makes components that share a bus and the sessions of their subscriptions. store: the one with the outbox."""

    def __init__(self, config: RuntimeConfig, store: Store, outbox: Outbox, observer: Observer) -> None:
        self._config = config
        self._store = store
        self._outbox = outbox
        self._observer = observer
        # Hints inside of one process are never lost; a test that turns the clock has no other process.
        self._polls = store.traits.shared and config.clock.is_system
        self._to_message = partial(bus_message, source=config.events.source_of(config.name))
        self._kafka = config.events.kafka()
        self._shown_bus = "the store" if self._kafka is None else f"Kafka at {self._kafka.servers}"
        self.connection: BusConnection = BusConnection(self._new_bus(), self._shown_bus, config.clock, observer)

    def _new_bus(self) -> Bus:
        if self._kafka is None:
            sessions = SessionPool(lambda: self.new_session("subscriptions"))
            return StoreBus(self._outbox, sessions, self._config.clock, self._to_message, polls=self._polls)
        from onthedot.events.kafka import KafkaBus  # an extra

        return KafkaBus(self._kafka, self._config.name)

    def relay(self) -> Relay:
        events = self._config.events
        poll = events.poll
        if not self._store.traits.joined_hints:
            poll = min(poll, _POLL_WITHOUT_HINTS)
        return Relay(
            self._outbox,
            self.new_session(RELAY),
            self.connection,
            RelaySettings(poll, events.keep_sent_ms, events.keep_arrivals_ms),
            clock=self._config.clock,
            random=self._config.random,
            observer=self._observer,
            read_limits=self._store.limits,
            to_message=self._to_message,
            polls=self._polls,
        )

    def callback_service(self, signals: EventSignals, tasks: Store) -> ResultSubscription:
        """tasks: the store whose tasks wait."""
        return ResultSubscription(
            self._config.name,
            self._config.events,
            signals,
            self.connection,
            self._outbox,
            tasks,
            self._config.clock,
            self._observer,
        )

    def subscriptions(self, store: Store) -> NewSubscription:
        """Makes subscriptions of agents, which share their hints. store: the one with the tasks."""
        clock = self._config.clock
        ends = EndHints(store, self._config.new_uuid(), clock, self._observer)
        modes = RecentModes(store, clock)
        return lambda source: AgentSubscription(source, self.connection, store, ends, modes, clock, self._observer)

    def new_session(self, kind: str) -> ComponentSession:
        return ComponentSession(
            kind,
            self._store,
            self._config.clock,
            self._observer,
            self._config.new_uuid,
            app=self._config.name,
            version=version(),
            watcher=self._config.session_watcher,
            url=self._config.events.outbox or "",
            bus=self._shown_bus,
        )
