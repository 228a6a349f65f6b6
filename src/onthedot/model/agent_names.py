"""Names of the sources of agents."""

from __future__ import annotations

AGENT_PREFIX = "agent."  # of the source of an agent's tasks


def agent_of(source: str) -> str | None:
    """The agent whose tasks a source has; None: it is no source of an agent.

    >>> agent_of("agent.mailer"), agent_of("mailer")
    ('mailer', None)
    """
    if not source.startswith(AGENT_PREFIX):
        return None
    return source.removeprefix(AGENT_PREFIX)
