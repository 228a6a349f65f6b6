"""Events: an outbox in the store, a relay to the bus, agents that handle events, and waits for their results."""

from onthedot.events.agent_registry import AgentRegistry
from onthedot.events.agents import BaseAgent, agent
from onthedot.events.callback_service import CallbackService
from onthedot.events.classification import classify
from onthedot.events.event import Event
from onthedot.events.resume_handles import ResumeHandle
from onthedot.events.settings import Events, Kafka
from onthedot.model.event_origin import event_id

__all__ = [
    "AgentRegistry",
    "BaseAgent",
    "CallbackService",
    "Event",
    "Events",
    "Kafka",
    "ResumeHandle",
    "agent",
    "classify",
    "event_id",
]
