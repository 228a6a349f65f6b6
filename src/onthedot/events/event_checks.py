"""The rules for the fields of new events."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from onthedot.errors import BadEvent
from onthedot.events.topic_names import check_topic
from onthedot.model.value_errors import BadEventField

if TYPE_CHECKING:
    from onthedot.events.event import Event

MAX_LABEL = 512  # bytes of ids and keys: databases index them
LIBRARY_PREFIX = "onthedot-"
RESERVED_HEADERS = ("ce_", "kafka_dlt-", LIBRARY_PREFIX)
"""Beginnings of the names of headers that the library writes; ``content-type`` is reserved, too."""
CONTENT_TYPE = "content-type"
_HEADER = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_MAX_NUMBER = 2**31 - 1  # of the column


def check_fields(event: Event[Any]) -> None:
    """BadEvent that names the first field that a new event cannot have. Its type is checked apart."""
    for name in ("id", "aggregate_id", "key", "correlation_id", "causation_id", "aggregate_type"):
        value = getattr(event, name)
        if name != "causation_id" or value is not None:
            _check_label(value, name)
    _check_number(event.version, "version", 1, _MAX_NUMBER)
    _check_number(event.retries, "retries", 0, _MAX_NUMBER)
    if event.priority is not None:
        _check_number(event.priority, "priority", 1, 10)
    _check_moment(event.occurred_at)
    _check_headers(event.headers)
    if event.topic is not None:
        check_topic(event.topic, "topic of an event:")


def is_reserved(header: str) -> bool:
    """Whether the library writes headers of this name."""
    name = header.lower()
    return name == CONTENT_TYPE or name.startswith(RESERVED_HEADERS)


def _check_label(value: object, name: str) -> None:
    if not isinstance(value, str):
        raise BadEvent(f"{name} of an event must be a text, not {value!r}, which is of type {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise BadEventField(f"{name} of an event has a lone surrogate at {error.start}") from None
    if not 1 <= size <= MAX_LABEL or "\0" in value:
        raise BadEventField(
            f"{name} of an event is {value[:60]!r}, of {size:,} bytes; it must have 1 to {MAX_LABEL} and no NUL"
        )


def _check_number(value: object, name: str, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadEventField(f"{name} of an event must be a whole number from {least} to {most}, not {value!r}")


def _check_moment(moment: object) -> None:
    if not isinstance(moment, datetime):
        raise BadEvent(f"occurred_at of an event must be a datetime, not {moment!r}")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise BadEventField(
            f"occurred_at of an event has no time zone: {moment!r}; pass an aware datetime, as datetime.now(UTC) is"
        )


def _check_headers(headers: object) -> None:
    if not isinstance(headers, Mapping):
        raise BadEvent(f"headers of an event must be a dict of texts, not {headers!r}")
    for name, value in cast("Mapping[object, object]", headers).items():
        if not isinstance(name, str) or not _HEADER.fullmatch(name):
            raise BadEventField(f"header {name!r} of an event is not a name: 1 to 100 of A-Z a-z 0-9 _ . -")
        if is_reserved(name):
            reserved = ", ".join(RESERVED_HEADERS)
            raise BadEventField(
                f"header {name!r} of an event is reserved: the library writes {CONTENT_TYPE} and names that begin with "
                f"{reserved}"
            )
        if not isinstance(value, str):
            raise BadEvent(f"header {name!r} of an event must be a text, not {value!r}")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadEventField(f"header {name!r} of an event has a lone surrogate at {error.start}") from None
