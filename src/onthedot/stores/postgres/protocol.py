"""What is said to the functions in the database, as JSON, and what they answer, as records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from onthedot.stores.contract import (
    NO_HISTORY,
    ClaimRequest,
    ClaimResult,
    Completed,
    Ended,
    FireRequest,
    History,
    Lease,
    NewTask,
    Note,
    Outcome,
    Policy,
    Record,
    Schedule,
)
from onthedot.stores.policy_json import policy_of, policy_text


class _New(Struct, omit_defaults=True):
    uuid: str
    source: str
    body: bytes
    at: int | None = None
    after: float = 0
    lane: str | None = None
    unique_key: str | None = None
    boost: int = 0
    cost: float = 1
    expires: int | None = None
    max_crashes: int = 3
    unique_for: int | None = None
    reply_to: str | None = None
    on_conflict: str = "keep"
    policy: str = "{}"


class _Said(Struct, omit_defaults=True):
    """An outcome. Without a state it comes back."""

    uuid: str
    fence: int
    session: str
    data: bytes | UnsetType = UNSET
    state: str | None = None
    keep: int | None = None
    keep_result: int | None = None
    after: int | None = None
    counted: bool | None = None
    tasks: list[_New] | None = None
    repeated: bool | None = None  # another outcome of the same task is in the list: each in its turn


_policies: dict[Policy, tuple[Any, ...]] = {}
_MOST = 10_000


def _of(policy: Policy) -> tuple[Any, ...]:
    """The part of a task that its policy makes; a declaration has one, and its tasks share it."""
    part = _policies.get(policy)
    if part is None:
        if len(_policies) >= _MOST:
            _policies.clear()
        part = _policies[policy] = (
            policy.boost, policy.cost, policy.expires, policy.max_crashes, policy.unique_for, policy.reply_to,
            policy.on_conflict, policy_text(policy),
        )  # fmt: skip
    return part


def encode_tasks(tasks: Iterable[NewTask]) -> list[_New]:
    return [
        _New(new.uuid, new.source, new.body, new.at, new.after, new.lane, new.unique, *_of(new.policy)) for new in tasks
    ]


class _Copy(_New, omit_defaults=True):
    """Of another store's: with its past, but for its lease."""

    added: int = 0
    retries: int = 0
    crashes: int = 0
    earlier: int = 0
    started: int | None = None
    error: bytes | None = None
    hops: int = 0


def encode_record(record: Record) -> _Copy:
    history = record.history
    said: tuple[Any, ...] = (
        record.uuid, record.source, record.body, record.due, 0, record.lane, record.unique, *_of(record.policy),
        record.added, history.retries, history.crashes, history.earlier, history.started, history.error, history.hops,
    )  # fmt: skip
    return _Copy(*said)


def encode_outcomes(outcomes: Sequence[Outcome]) -> list[_Said]:
    said = [encode_outcome(outcome) for outcome in outcomes]
    if len({each.uuid for each in said}) < len(said):
        times = Counter(each.uuid for each in said)
        for each in said:
            each.repeated = times[each.uuid] > 1 or None
    return said


def encode_outcome(outcome: Outcome) -> _Said:
    lease, adds = outcome.lease, outcome.effects
    tasks = encode_tasks(adds.tasks) if adds is not None and adds.tasks else None
    if isinstance(outcome, Completed):
        end, keep_result = outcome.result, outcome.keep_result
        return _Said(lease.uuid, lease.fence, lease.session, end, "succeeded", outcome.keep, keep_result, tasks=tasks)
    if isinstance(outcome, Ended):
        return _Said(lease.uuid, lease.fence, lease.session, outcome.error, outcome.state, outcome.keep, tasks=tasks)
    after, counted = outcome.after, outcome.counted
    return _Said(lease.uuid, lease.fence, lease.session, outcome.error, after=after, counted=counted, tasks=tasks)


def encode_ask(request: ClaimRequest, *, again: bool) -> dict[str, Any]:
    return {
        "number": request.number,
        "pools": [{"total": pool.total, "capacity": dict(pool.capacity)} for pool in request.pools],
        "max_suspects": request.max_suspects,
        "known": None if request.known_sources is None else sorted(request.known_sources),
        "repeat": again,
    }


def encode_note(note: Note) -> dict[str, Any]:
    lease = note.lease
    return {
        "uuid": lease.uuid, "fence": lease.fence, "session": lease.session,
        "kind": note.kind, "name": note.name, "data": note.data,
    }  # fmt: skip


def encode_fire(fire: FireRequest) -> dict[str, Any]:
    return {
        "name": fire.name, "rev": fire.rev, "tasks": encode_tasks(fire.tasks), "next_at": fire.next_at,
        "last_at": fire.last_at,
    }  # fmt: skip


def encode(said: object) -> str:
    return msgspec.json.encode(said).decode()


def history_of(text: str | None) -> History:
    if text is None:
        return NO_HISTORY
    reason, retries, crashes, earlier, cancel, settled, session, started, ended, keep_until, _, error, hops = (
        msgspec.json.decode(text)
    )
    return History(
        reason, retries, crashes, earlier, cancel, settled, session, started, ended, keep_until, None,
        None if error is None else bytes.fromhex(error), hops,
    )  # fmt: skip


def records(row: Any) -> list[Record]:
    """From the arrays of a claim. What runs has no state of its own: it was ready."""
    if not row["uuids"]:
        return []
    columns = [row[name] for name in _COLUMNS]
    return [
        Record(
            uuid, source, body, policy_of(policy), lane, unique, due, seq, added, state or "ready", history_of(history)
        )
        for uuid, source, body, policy, lane, unique, due, seq, added, state, history in zip(*columns, strict=True)
    ]


_COLUMNS = (
    "uuids", "sources", "bodies", "policies", "lanes", "unique_keys", "dues", "seqs", "addeds", "states", "histories",
)  # fmt: skip


def record_as_seen(row: Any) -> Record:
    """A row of `get` or `find`: with the claim that holds it, or its result."""
    uuid, source, body, policy, lane, unique, due, seq, added, state, text, result, session, at = row
    history = history_of(text)
    if session is not None or result is not None:
        history = History(
            history.reason,
            history.retries,
            history.crashes,
            history.earlier,
            history.cancel_requested,
            history.settled_fence,
            session or history.session,
            history.started if at is None else at,
            history.ended,
            history.keep_until,
            result,
            history.error,
            history.hops,
        )
    return Record(uuid, source, body, policy_of(policy), lane, unique, due, seq, added, state, history)


def claimed(row: Any) -> ClaimResult:
    found, number = records(row), row["number"]
    schedules: list[list[Any]] = msgspec.json.decode(row["schedules"]) if row["schedules"] else []
    return ClaimResult(
        row["fence"],
        found[:number],
        found[number:],
        [Schedule(name, bytes.fromhex(rule), *rest) for name, rule, *rest in schedules],
        msgspec.json.decode(row["idle"]),
        frozenset(row["woken"]),
        row["next_in"],
        row["more"],
        row["moment"],
    )


def leases(text: str | None, session: str) -> list[Lease]:
    found: Sequence[tuple[str, int]] = msgspec.json.decode(text) if text else ()
    return [Lease(uuid, fence, name) for (uuid, fence), name in zip(found, repeat(session), strict=False)]
