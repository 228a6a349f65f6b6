"""Events and resume handles as JSON for the functions in the database, and their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from onthedot.stores.contract import (
    MAX_READ_BYTES,
    Arrival,
    EventStatus,
    HandleRecord,
    LogPage,
    NewEvent,
    OutboxEvent,
    Outcome,
    RelayRequest,
    RelayResult,
)

# -- requests


class _EventJson(Struct, omit_defaults=True, gc=False):
    """Payload and headers are JSON within a text: the database keeps their bytes as they are."""

    id: str
    topic: str
    key: str
    bucket: int
    type: str = ""
    version: int = 1
    aggregate_type: str = ""
    aggregate_id: str = ""
    correlation_id: str | None = None
    causation_id: str | None = None
    retries: int = 0
    occurred_at: int = 0
    payload_text: str | None = None
    raw: bytes | None = None
    headers_text: str | None = None
    outcome: int = 0  # the position of the outcome that publishes it


def encode_events(events: Iterable[NewEvent], outcome: int = 0) -> list[_EventJson]:
    return [
        _EventJson(
            new.id, new.topic, new.key, new.bucket, new.type, new.version, new.aggregate_type, new.aggregate_id,
            new.correlation_id, new.causation_id, new.retries, new.occurred_at, _to_text(new.payload), new.raw,
            _to_text(new.headers), outcome,
        )
        for new in events
    ]  # fmt: skip


def encode_published(outcomes: Sequence[Outcome]) -> list[_EventJson]:
    """The events of all outcomes."""
    return [
        event
        for position, outcome in enumerate(outcomes, 1)
        if outcome.effects is not None and outcome.effects.events
        for event in encode_events(outcome.effects.events, position)
    ]


def encode_relay_request(
    sent: Sequence[int], refused: Mapping[int, str], request: RelayRequest | None, *, to_log: bool
) -> dict[str, Any]:
    fields: dict[str, Any] = {"sent": sent, "refused": refused or None, "to_log": to_log}
    if request is not None:
        fields |= {
            "limit": request.limit,
            "most_bytes": MAX_READ_BYTES,
            "in_flight": request.in_flight,
            "busy": request.busy,
            "skip_topics": request.skip_topics,
        }
    return fields


def encode_arrival(arrival: Arrival) -> dict[str, Any]:
    return {
        "correlation_id": arrival.correlation_id,
        "event_id": arrival.event_id,
        "type": arrival.type,
        "event": arrival.event.decode(),
    }


def encode_handle(handle: HandleRecord) -> dict[str, Any]:
    return {
        "id": handle.id,
        "correlation_id": handle.correlation_id,
        "expected": handle.expected,
        "target": handle.target,
        "timeout": handle.timeout,
    }


def _to_text(json: bytes | None) -> str | None:
    return None if json is None else json.decode()


# -- answers

_decode_handle = Decoder(HandleRecord).decode
_decode_handles = Decoder(list[HandleRecord]).decode


def to_handle(text: str) -> HandleRecord:
    return _decode_handle(text)


def to_handles(text: str | None) -> list[HandleRecord]:
    """None: there are none."""
    return _decode_handles(text) if text else []


def to_outbox_event(row: Any) -> OutboxEvent:
    """From the columns of `event_columns`."""
    event = NewEvent(
        row["id"], row["topic"], row["key"], row["bucket"], row["type"], row["version"], row["aggregate_type"],
        row["aggregate_id"], row["correlation_id"], row["causation_id"], row["retries"], row["occurred_at"],
        _to_bytes(row["payload"]), row["raw"], _to_bytes(row["headers"]),
    )  # fmt: skip
    return OutboxEvent(row["seq"], event, row["status"], row["attempts"], row["error"], row["sent_at"], row["position"])


def to_outbox_events(row: Any, status: EventStatus) -> list[OutboxEvent]:
    """From the arrays of `outbox_events_v1`."""
    if not row["seqs"]:
        return []
    columns = zip(
        row["seqs"], row["ids"], row["topics"], row["keys"], row["buckets"], row["types"], row["versions"],
        row["aggregate_types"], row["aggregate_ids"], row["correlation_ids"], row["causation_ids"], row["retries"],
        row["occurred_ats"], map(_to_bytes, row["payloads"]), row["raws"], map(_to_bytes, row["headers"]),
        row["attempts"], row["errors"], row["sent_ats"], row["positions"], strict=True,
    )  # fmt: skip
    return [
        OutboxEvent(seq, NewEvent(*fields), status, attempts, error, sent_at, position)
        for seq, *fields, attempts, error, sent_at, position in columns
    ]


def to_relay_result(row: Any) -> RelayResult:
    if not row["alive"] or row["owned"] is None:
        return RelayResult(alive=row["alive"])
    return RelayResult(
        alive=True, events=to_outbox_events(row, "pending"), buckets=sorted(row["owned"]), more=row["more"]
    )


def to_log_page(row: Any) -> LogPage:
    if not row["alive"]:
        return LogPage(alive=False)
    owned: Sequence[int] = row["owned"] or ()
    reached: Sequence[int] = row["reached"] or ()
    positions = dict(zip(owned, reached, strict=True))
    return LogPage(alive=True, events=to_outbox_events(row, "sent"), buckets=positions)


def _to_bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
