"""An event: a domain fact that leaves through the outbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, cast

import msgspec

from onthedot.errors import BadEvent
from onthedot.events.event_checks import check_fields
from onthedot.events.event_types import check_type, default_aggregate_type
from onthedot.events.payloads import plain_payload
from onthedot.model.context import current_event_origin
from onthedot.model.uuid7 import new_uuid

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    P_co = TypeVar("P_co", covariant=True, default=Mapping[str, Any])
    Q = TypeVar("Q")
else:  # the run time of Python 3.11 knows no defaults of type variables, and needs none
    from typing import TypeVar

    P_co = TypeVar("P_co", covariant=True)
    Q = TypeVar("Q")

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Event(Generic[P_co]):
    """A domain fact, to be published or received. It is frozen, and equal to every event with the same id.

    `id`, `correlation_id`, `causation_id` and `retries` need not be given. Inside a task the id derives from the task:
    a run that is repeated makes the same ids, so it publishes nothing twice; an operator's retry makes new ones.

    Args:
        type: 3 or 4 segments in PascalCase, the last one in the past tense, as in ``"Shop.Order.Placed"``.
        payload: anything that JSON can hold: a dict, a dataclass, a Struct, a pydantic model.
        aggregate_id: id of the object that it is about.
        aggregate_type: kind of that object; by default the first two segments of the type, as in ``"ShopOrder"``.
        key: order is kept among events with the same key; by default `aggregate_id`. An event that asks for work has
            the id of the work, so that the work of one object runs in parallel.
        correlation_id: the same in all events that follow from one command; by default that of the event that is
            handled here, else ``correlation_id`` of the task's metadata, else the id of this event.
        causation_id: id of the event that caused it; by default that of the event that is handled here.
        version: of the form of the payload, from 1.
        retries: that were needed to make it; by default those of the task that handles an event, else 0.
        priority: 1 to 10, 10 first: the priority of the tasks that handle it; None: that of the agent.
        id: unique; by default a new one.
        occurred_at: when it happened, an aware datetime; by default now. It is kept in UTC, to the millisecond.
        headers: for other programs: names of 1 to 100 of ``A-Z a-z 0-9 _ . -``, which do not begin with ``ce_``,
            ``kafka_dlt-`` or ``onthedot-``.
        topic: where it is sent; by default ``Events(topics=…)`` decides.

    >>> placed = Event("Shop.Order.Placed", {"id": 17}, aggregate_id="17", id="e1")
    >>> placed.aggregate_type, placed.key, placed.correlation_id
    ('ShopOrder', '17', 'e1')
    >>> shipped = placed.reply("Shop.Order.Shipped", {"id": 17})
    >>> shipped.aggregate_id, shipped.correlation_id, shipped.causation_id
    ('17', 'e1', 'e1')
    >>> Event.from_dict(placed.to_dict()) == placed
    True
    """

    type: str
    payload: P_co
    aggregate_id: str
    aggregate_type: str
    key: str
    correlation_id: str
    causation_id: str | None
    version: int
    retries: int
    priority: int | None
    id: str
    occurred_at: datetime
    headers: Mapping[str, str]
    topic: str | None

    def __init__(
        self,
        type: str,  # noqa: A002 - as the field is called everywhere
        payload: P_co,
        *,
        aggregate_id: str,
        aggregate_type: str | None = None,
        key: str | None = None,
        correlation_id: str | None = None,
        causation_id: str | None = None,
        version: int = 1,
        retries: int | None = None,
        priority: int | None = None,
        id: str | None = None,  # noqa: A002
        occurred_at: datetime | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
        topic: str | None = None,
    ) -> None:
        check_type(type)
        origin = None
        if id is None or correlation_id is None or causation_id is None or retries is None:
            origin = current_event_origin()
        if id is None:
            id = new_uuid() if origin is None else origin.next_id()  # noqa: A001
        if origin is not None:
            correlation_id = correlation_id or origin.correlation_id
            causation_id = causation_id or origin.causation_id
            retries = origin.retries if retries is None else retries
        self.__dict__.update(  # at once, and although the class is frozen
            type=type,
            payload=payload,
            aggregate_id=aggregate_id,
            aggregate_type=default_aggregate_type(type) if aggregate_type is None else aggregate_type,
            key=aggregate_id if key is None else key,
            correlation_id=id if correlation_id is None else correlation_id,
            causation_id=causation_id,
            version=version,
            retries=retries or 0,
            priority=priority,
            id=id,
            occurred_at=datetime.now(UTC) if occurred_at is None else occurred_at,
            headers=headers,
            topic=topic,
        )
        check_fields(self)
        object.__setattr__(self, "occurred_at", _in_milliseconds(self.occurred_at))
        object.__setattr__(self, "headers", MappingProxyType(dict(headers)))  # the caller may change its own

    def reply(self, type: str, payload: Q, *, key: str | None = None, **changes: Any) -> Event[Q]:  # noqa: A002
        """An event that this one has caused: of the same aggregate, with the same key and correlation id.

        Args:
            type: its type.
            payload: its payload.
            key: its key, if it has another one.
            changes: other arguments of an event, such as ``version=2``.
        """
        taken: dict[str, Any] = {
            "aggregate_id": self.aggregate_id,
            "aggregate_type": self.aggregate_type or None,
            "correlation_id": self.correlation_id,
            "causation_id": self.id,
        }
        return Event(type, payload, key=self.key if key is None else key, **(taken | changes))

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON: the payload as other programs read it, `occurred_at` as text in ISO 8601."""
        return {
            "id": self.id,
            "type": self.type,
            "payload": plain_payload(self.payload, self.type),
            "aggregate_type": self.aggregate_type,
            "aggregate_id": self.aggregate_id,
            "key": self.key,
            "correlation_id": self.correlation_id,
            "causation_id": self.causation_id,
            "version": self.version,
            "retries": self.retries,
            "priority": self.priority,
            "occurred_at": self.occurred_at.isoformat(timespec="milliseconds"),
            "headers": dict(self.headers),
            "topic": self.topic,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Event[Any]:
        """The event of a dict from ``to_dict``. The payload remains plain JSON.

        An event of another program need not follow the rules for new events; publishing it would be refused.

        Args:
            data: The dict; unknown keys are ignored.
        """
        try:
            stored = msgspec.convert(data, _EventFields)
        except msgspec.ValidationError as error:
            raise BadEvent(f"not an event: {error}") from None
        return received_event(**msgspec.structs.asdict(stored))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], Event[Any]], tuple[dict[str, Any]]]:
        return _event_of_fields, (_fields_of(self) | {"headers": dict(self.headers)},)

    def __repr__(self) -> str:
        return f"Event({self.type!r}, {self.payload!r}, aggregate_id={self.aggregate_id!r}, id={self.id!r})"


class _EventFields(msgspec.Struct):
    """The dict of an event."""

    id: str
    type: str
    aggregate_id: str
    occurred_at: datetime
    payload: Any = None
    aggregate_type: str | None = None
    key: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    version: int = 1
    retries: int = 0
    priority: int | None = None
    headers: Mapping[str, str] = {}
    topic: str | None = None


def received_event(
    *,
    id: str,  # noqa: A002
    type: str,  # noqa: A002
    payload: Q,
    occurred_at: datetime,
    aggregate_id: str | None = None,
    aggregate_type: str | None = None,
    key: str | None = None,
    correlation_id: str | None = None,
    causation_id: str | None = None,
    version: int = 1,
    retries: int = 0,
    priority: int | None = None,
    headers: Mapping[str, str] = _NO_HEADERS,
    topic: str | None = None,
) -> Event[Q]:
    """An event that exists already. It takes over nothing from the task that runs here, and is not checked: other
    programs have other rules."""
    event = cast("Event[Q]", object.__new__(Event))
    subject = aggregate_id or key or id
    event.__dict__.update(  # at once, and although the class is frozen
        type=type,
        payload=payload,
        aggregate_id=subject,
        aggregate_type=default_aggregate_type(type) if aggregate_type is None else aggregate_type,
        key=key or subject,
        correlation_id=correlation_id or id,
        causation_id=causation_id,
        version=version,
        retries=retries,
        priority=priority,
        id=id,
        occurred_at=_in_milliseconds(occurred_at),
        headers=MappingProxyType(dict(headers)) if headers else _NO_HEADERS,
        topic=topic,
    )
    return event


def with_origin(event: Event[Q], *, correlation_id: str, causation_id: str, retries: int) -> Event[Q]:
    """The same event, with what it takes over from the event that is handled."""
    origin = {"correlation_id": correlation_id, "causation_id": causation_id, "retries": retries}
    return _event_of_fields(_fields_of(event) | origin)


def _fields_of(event: Event[Any]) -> dict[str, Any]:
    return {field.name: getattr(event, field.name) for field in fields(event)}


def _event_of_fields(values: dict[str, Any]) -> Event[Any]:
    return received_event(**values)


def _in_milliseconds(moment: datetime) -> datetime:
    """Down to the millisecond, which all stores and buses keep."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    beyond = moment.microsecond % 1000
    return moment.replace(microsecond=moment.microsecond - beyond) if beyond else moment
