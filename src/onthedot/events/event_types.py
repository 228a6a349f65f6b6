"""Types of events, as in ``Shop.Order.Placed``: their form, the past tense of their action, and patterns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from onthedot.errors import BadEvent

VERBS = ("Sent", "Paid", "Built", "Made", "Found", "Lost", "Sold", "Bought", "Begun", "Withdrawn", "Written")
"""Actions in the past tense that do not end in "ed"."""
PASCAL_CASE = re.compile(r"[A-Z][A-Za-z0-9]*")
_MAX_LENGTH = 200
_SEGMENTS = (3, 4)
_FORM = "Domain.Aggregate.Action or Domain.Aggregate.Sub.Action, as in Shop.Order.Placed"


def check_type(event_type: object) -> str:
    """The type itself; BadEvent unless it has 3 or 4 segments in PascalCase.

    >>> check_type("Shop.Order.Placed")
    'Shop.Order.Placed'
    >>> check_type("Shop.order.Placed")
    Traceback (most recent call last):
    onthedot.errors.BadEvent: event type 'Shop.order.Placed': segment 2, 'order', is not PascalCase; write 'Order'
    """
    segments = _checked_segments(event_type, "event type")
    for number, segment in enumerate(segments, 1):
        _check_segment(event_type, number, segment)
    return ".".join(segments)


def check_action(event_type: str, verbs: Sequence[str] = VERBS) -> None:
    """BadEvent unless the action, the last segment, is in the past tense: it ends in "ed" or in one of these verbs.

    >>> check_action("Shop.Order.Shipped")
    >>> check_action("Shop.Order.Ship")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    onthedot.errors.BadEvent: event type 'Shop.Order.Ship': its action 'Ship' is not in the past tense; it must ...
    """
    action = event_type.rpartition(".")[2]
    if not action.endswith(("ed", *verbs)):
        raise BadEvent(
            f"event type {event_type!r}: its action {action!r} is not in the past tense; it must end in 'ed' or in one "
            f"of {', '.join(verbs)}; add other verbs by Events(verbs=(…, …))"
        )


def default_aggregate_type(event_type: str) -> str:
    """The first two segments.

    >>> default_aggregate_type("Genesis.Session.DetailBatchCreated")
    'GenesisSession'
    """
    return "".join(event_type.split(".")[:2])


class TypePattern(NamedTuple):
    """Types of events: one, or with ``*`` in the last segment, where it stands for any characters except a dot.

    >>> pattern = TypePattern.of("Genesis.Session.*Requested")
    >>> pattern.matches("Genesis.Session.DetailBatchGenerationRequested"), pattern.matches("Genesis.Session.Created")
    (True, False)
    """

    stem: str
    """The segments before the last one, joined."""
    action: str
    """The last segment, perhaps with ``*``."""

    @classmethod
    def of(cls, text: object) -> TypePattern:
        """BadEvent for a text that no type can match."""
        segments = _checked_segments(text, "pattern of event types")
        *stem, action = segments
        for number, segment in enumerate(stem, 1):
            if "*" in segment:
                raise BadEvent(
                    f"pattern of event types {text!r}: * may be in the last segment only, not in {segment!r}"
                )
            _check_segment(text, number, segment)
        if not PASCAL_CASE.fullmatch(re.sub(r"^\*", "A", action).replace("*", "")):
            _check_segment(text, len(segments), action)
        return cls(".".join(stem), action)

    @property
    def is_type(self) -> bool:
        """Whether it matches one type only."""
        return "*" not in self.action

    def matches(self, event_type: str) -> bool:
        """Whether it matches this type."""
        stem, _, action = event_type.rpartition(".")
        if self.is_type:
            return action == self.action and stem == self.stem
        return stem == self.stem and _expression(self.action).fullmatch(action) is not None

    def meets(self, other: TypePattern) -> bool:
        """Whether there can be a type that both match.

        >>> TypePattern.of("Shop.Order.*ed").meets(TypePattern.of("Shop.Order.P*"))
        True
        >>> TypePattern.of("Shop.Order.*Requested").meets(TypePattern.of("Shop.Order.*Created"))
        False
        """
        return self.stem == other.stem and _can_meet(self.action, other.action)

    def covers(self, other: TypePattern) -> bool:
        """Whether it matches every type that the other matches."""
        if other.is_type:
            return self.matches(str(other))
        return self == other or (self.stem == other.stem and set(self.action) == {"*"})

    def __str__(self) -> str:
        return f"{self.stem}.{self.action}"


@lru_cache(maxsize=1024)
def _expression(action: str) -> re.Pattern[str]:
    return re.compile("[A-Za-z0-9]*".join(map(re.escape, action.split("*"))))


@lru_cache(maxsize=4096)
def _can_meet(left: str, right: str) -> bool:
    """Whether some text matches both, where * stands for any characters."""
    if not left or not right:
        return set(left + right) <= {"*"}
    if left[0] == "*":
        return _can_meet(left[1:], right) or _can_meet(left, right[1:])
    if right[0] == "*":
        return _can_meet(right, left)
    return left[0] == right[0] and _can_meet(left[1:], right[1:])


def _checked_segments(text: object, what: str) -> list[str]:
    if not isinstance(text, str):
        raise BadEvent(f"{what} {text!r} is of type {type(text).__name__}; write {_FORM}")
    segments = text.split(".")
    if len(segments) not in _SEGMENTS:
        raise BadEvent(f"{what} {text[:_MAX_LENGTH]!r} has {len(segments)} segments, not 3 or 4; write {_FORM}")
    if len(text) > _MAX_LENGTH:
        raise BadEvent(f"{what} {text[:_MAX_LENGTH]!r}… has {len(text)} characters; at most {_MAX_LENGTH} are allowed")
    return segments


def _check_segment(text: object, number: int, segment: str) -> None:
    if PASCAL_CASE.fullmatch(segment):
        return
    advice = f"write {_FORM}"
    words = re.findall(r"[A-Za-z0-9]+", segment)
    meant = "".join(word[0].upper() + word[1:] for word in words)
    if PASCAL_CASE.fullmatch(meant):
        advice = f"write {meant!r}"
    raise BadEvent(f"event type {text!r}: segment {number}, {segment!r}, is not PascalCase; {advice}")
