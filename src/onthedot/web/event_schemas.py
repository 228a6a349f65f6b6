"""The JSON of events in full, dead letters, agents and resume handles; `feature_schemas` has the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from onthedot.web.feature_schemas import EventRow
from onthedot.web.schemas import ErrorText, Moment, PauseRow, SourceRates


class PayloadText(Struct, frozen=True, kw_only=True):
    """The value of an event, without its secrets. text: JSON, or what its bytes are as text; cut: its end is missing.

    Of an event of more than 4 MiB, text only says so.

    size: bytes, before secrets were hidden
    """

    text: str
    size: int
    cut: bool
    headers: Mapping[str, str]


class EventDetail(Struct, frozen=True):
    """An event of the outbox in full."""

    event: EventRow
    payload: PayloadText


class DeadLetterRow(Struct, frozen=True, kw_only=True):
    """An event that an agent could not handle. id: of the dead letter; event_id: of the event; topic: it came from.

    task: uuid of the task that handled it; replay: how often the event was replayed before it failed
    """

    id: str
    event_id: str
    at: Moment | None
    topic: str
    agent: str
    type: str
    correlation_id: str
    error: ErrorText
    attempts: int | None
    replay: int
    task: str


class DeadLetterList(Struct, frozen=True):
    """Dead letters, newest first. others: older ones that fit and are not listed."""

    items: Sequence[DeadLetterRow]
    others: int


class DeadLetterDetail(Struct, frozen=True):
    """A dead letter in full."""

    letter: DeadLetterRow
    payload: PayloadText
    traceback: str


class AgentRow(Struct, frozen=True, kw_only=True):
    """An agent. in_flight: events received and not ended; lag: events that its group has not committed; null: unknown.

    done: per minute of the last hour; failed, retried: in the last hour; workers: ids
    """

    agent: str
    source: str
    in_flight: int
    running: int
    lag: int | None
    members: int | None
    rates: SourceRates | None
    done: Sequence[int]
    failed: int
    retried: int
    workers: Sequence[str]
    paused: PauseRow | None


class AgentList(Struct, frozen=True):
    """All agents. handles: resume handles by status."""

    items: Sequence[AgentRow]
    handles: Mapping[str, int]


class ExpectedEvents(Struct, frozen=True):
    """So many events of these types together."""

    types: Sequence[str]
    count: int


class ArrivalRow(Struct, frozen=True):
    """An event that has come for a correlation id."""

    event_id: str
    type: str
    at: Moment | None


class HandleRow(Struct, frozen=True, kw_only=True):
    """A resume handle. resumes: what is woken; arrived: the events of its correlation id, of which `received` count."""

    id: str
    correlation_id: str
    status: str
    expected: Sequence[ExpectedEvents]
    received: int
    total: int
    resumes: str
    created_at: Moment
    expires_at: Moment
    ended_at: Moment | None
    arrived: Sequence[ArrivalRow]
