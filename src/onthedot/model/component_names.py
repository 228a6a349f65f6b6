"""Names of the kinds of components that run beside a worker."""

from __future__ import annotations

RELAY = "relay"
AGENTS = "agents"
CALLBACK = "callback"
COMPONENT_KINDS = (RELAY, AGENTS, CALLBACK)
