"""Names of the limit records that pause the outbox."""

from __future__ import annotations

OUTBOX_LIMIT = "@outbox"
_TOPIC_PREFIX = f"{OUTBOX_LIMIT}/"


def pause_name(topic: str | None) -> str:
    """The limit record that pauses a topic; None: the whole outbox.

    >>> pause_name(None), pause_name("shop.order.events")
    ('@outbox', '@outbox/shop.order.events')
    """
    if topic is None:
        return OUTBOX_LIMIT
    return f"{_TOPIC_PREFIX}{topic}"


def paused_topic(name: str) -> str | None:
    """The topic of a limit record; None if it is another one.

    >>> paused_topic("@outbox/shop.order.events"), paused_topic("@outbox"), paused_topic("@openai/acme")
    ('shop.order.events', None, None)
    """
    if name.startswith(_TOPIC_PREFIX):
        return name.removeprefix(_TOPIC_PREFIX)
    return None


def is_outbox_limit(name: str) -> bool:
    """Whether a limit record is about the outbox, and about no tasks."""
    return name == OUTBOX_LIMIT or name.startswith(_TOPIC_PREFIX)
