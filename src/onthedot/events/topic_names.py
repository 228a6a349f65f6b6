"""Names of topics: Kafka's rules, the default topic of an event type, and the topic of dead letters."""

from __future__ import annotations

import re

from onthedot.errors import BadEvent

MAX_TOPIC = 249  # Kafka's limit, for the name of a file
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")


def check_topic(topic: object, what: str = "topic", suffix: str = "") -> str:
    """The topic itself; BadEvent for a name that Kafka refuses.

    what: names it in the error. suffix: of dead letters; the name with it must be allowed, too.

    >>> check_topic("genesis.requests")
    'genesis.requests'
    >>> check_topic("genesis requests")
    Traceback (most recent call last):
    onthedot.errors.BadEvent: topic 'genesis requests' is not a name for Kafka: 1 to 249 of A-Z a-z 0-9 . _ -
    """
    if problem := topic_problem(topic, suffix):
        raise BadEvent(f"{what} {topic!r} {problem}")
    return str(topic)


def topic_problem(topic: object, suffix: str = "") -> str:
    """Why Kafka refuses this name; empty if it does not."""
    if not isinstance(topic, str) or topic in (".", "..") or len(topic) > MAX_TOPIC or not _TOPIC.fullmatch(topic):
        return f"is not a name for Kafka: 1 to {MAX_TOPIC} of A-Z a-z 0-9 . _ -"
    if len(topic) + len(suffix) > MAX_TOPIC:
        return f"is too long: with {suffix!r} for its dead letters it has more than {MAX_TOPIC} characters"
    return ""


def default_topic(event_type: str) -> str:
    """The topic of a type that no pattern routes.

    >>> default_topic("Genesis.Session.DetailBatchCreated")
    'genesis.session.events'
    """
    domain, aggregate = event_type.split(".")[:2]
    return f"{domain}.{aggregate}.events".lower()


def dead_letter_topic(topic: str, suffix: str) -> str:
    """
    >>> dead_letter_topic("genesis.requests", ".DLT")
    'genesis.requests.DLT'
    """
    return topic + suffix


def original_topic(topic: str, suffix: str) -> str | None:
    """The topic whose dead letters are here; None for a topic without the suffix.

    >>> original_topic("genesis.requests.DLT", ".DLT")
    'genesis.requests'
    """
    original = topic.removesuffix(suffix)
    if original in ("", topic):
        return None
    return original
