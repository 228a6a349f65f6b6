"""Requests to the functions in the database, as JSON, and their answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Literal, TypedDict, assert_never

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import Decoder
from msgspec.structs import replace

from onthedot.clock.durations import WEEK
from onthedot.stores.contract import (
    DEFAULT,
    NO_HISTORY,
    Added,
    ClaimRequest,
    ClaimResult,
    Completed,
    Ended,
    FireRequest,
    History,
    Lease,
    Links,
    NewSignal,
    NewTask,
    Note,
    Outcome,
    Policy,
    Record,
    Requeued,
    Schedule,
    State,
    StoreIdentity,
    Suspended,
)
from onthedot.stores.policy_json import policy_of, policy_text
from onthedot.stores.postgres.links import decode_links, encode_links, encode_wait
from onthedot.stores.rules.records import UNQUEUED_REASONS

_MAX_POLICIES = 10_000

# -- requests


class _TaskJson(Struct, omit_defaults=True, gc=False):
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
    links: Raw | UnsetType = UNSET


class _RecordJson(_TaskJson, omit_defaults=True, gc=False):
    """A task of another store, with its history."""

    added: int = 0
    retries: int = 0
    crashes: int = 0
    earlier: int = 0
    started: int | None = None
    error: bytes | None = None
    hops: int = 0
    revives: int = 0


class _SpawnedJson(_TaskJson, omit_defaults=True, gc=False):
    """A new task of an outcome, which is named by its position."""

    outcome: int = 0


class _RequeueJson(Struct, omit_defaults=True, gc=False):
    after: int | None = None
    counted: bool | None = None
    reset_crashes: bool = False
    wait: Raw | UnsetType = UNSET


class _OutcomeJson(Struct, omit_defaults=True, gc=False):
    """Fields that have their default are left out: the database pays for each one. requeue: the task does not end."""

    uuid: str
    fence: int
    data: bytes = b""
    session: str | UnsetType = UNSET
    state: str = "succeeded"
    keep: int = WEEK  # that of most ends; the database knows it too
    keep_result: int | None = None
    requeue: _RequeueJson | UnsetType = UNSET


class _PolicyFields(TypedDict):
    """The fields of `_TaskJson` that come from a policy."""

    boost: int
    cost: float
    expires: int | None
    max_crashes: int
    unique_for: int | None
    reply_to: str | None
    on_conflict: str
    policy: str


_policies: dict[Policy, _PolicyFields] = {}


def _policy_fields(policy: Policy) -> _PolicyFields:
    """Tasks of one definition share a policy, so its fields are made once."""
    fields = _policies.get(policy)
    if fields is None:
        if len(_policies) >= _MAX_POLICIES:
            _policies.clear()
        fields = _policies[policy] = _PolicyFields(
            boost=policy.boost,
            cost=policy.cost,
            expires=policy.expires,
            max_crashes=policy.max_crashes,
            unique_for=policy.unique_for,
            reply_to=policy.reply_to,
            on_conflict=policy.on_conflict,
            policy=policy_text(policy),
        )
    return fields


def encode_tasks(tasks: Iterable[NewTask]) -> list[_TaskJson]:
    return [
        _TaskJson(
            new.uuid, new.source, new.body, new.at, new.after, new.lane, new.unique, links=encode_links(new.links),
            **_policy_fields(new.policy),
        )
        for new in tasks
    ]  # fmt: skip


def must_be_in_parts(tasks: Sequence[_TaskJson]) -> bool:
    """Whether a task may find what an earlier one of the list has left: some have a unique key, or the same uuid."""
    return any(new.unique_key is not None for new in tasks) or len({new.uuid for new in tasks}) < len(tasks)


def encode_record(record: Record) -> _RecordJson:
    history = record.history
    return _RecordJson(
        record.uuid,
        record.source,
        record.body,
        record.due,
        0,
        record.lane,
        record.unique,
        **_policy_fields(record.policy),
        added=record.added,
        retries=history.retries,
        crashes=history.crashes,
        earlier=history.earlier,
        started=history.started,
        error=history.error,
        hops=history.hops,
        revives=history.revives,
    )


def encode_outcomes(outcomes: Sequence[Outcome], session: str) -> list[_OutcomeJson]:
    """session: the database takes it for that of the outcomes that have none."""
    return [_encode_outcome(outcome, session) for outcome in outcomes]


def settle_order(outcomes: Sequence[Outcome], spawned: Sequence[_SpawnedJson]) -> Literal["any", "given", "check"]:
    """In which order outcomes are settled. check: their tasks decide whether they depend on each other."""
    uuids = {outcome.lease.uuid for outcome in outcomes}
    if len(uuids) < len(outcomes) or any(new.uuid in uuids for new in spawned):
        return "given"
    if len(outcomes) > 1 and (any(new.unique_key is not None for new in spawned) or any(map(_is_due, outcomes))):
        return "check"
    return "any"


def _is_due(outcome: Outcome) -> bool:
    """Whether the task is requeued and due at once."""
    return isinstance(outcome, Requeued) and (outcome.after or 0) <= 0


def encode_spawned(outcomes: Sequence[Outcome]) -> list[_SpawnedJson]:
    """The new tasks of all outcomes."""
    return [
        _SpawnedJson(
            new.uuid, new.source, new.body, new.at, new.after, new.lane, new.unique, links=encode_links(new.links),
            outcome=position, **_policy_fields(new.policy),
        )
        for position, outcome in enumerate(outcomes, 1)
        if outcome.effects is not None
        for new in outcome.effects.tasks
    ]  # fmt: skip


def _encode_outcome(outcome: Outcome, default_session: str) -> _OutcomeJson:
    lease = outcome.lease
    session: str | UnsetType = UNSET
    if lease.session != default_session:
        session = lease.session
    match outcome:
        case Completed(result=result, keep=keep, keep_result=keep_result):
            return _OutcomeJson(lease.uuid, lease.fence, result, session, "succeeded", keep, keep_result)
        case Ended(state=state, error=error, keep=keep):
            return _OutcomeJson(lease.uuid, lease.fence, error, session, state, keep)
        case Requeued(error=error, after=after, counted=counted, reset_crashes=reset):
            requeue = _RequeueJson(after, counted, reset)
            return _OutcomeJson(lease.uuid, lease.fence, error, session, requeue=requeue)
        case Suspended(wait=wait):
            requeue = _RequeueJson(counted=False, wait=encode_wait(wait))
            return _OutcomeJson(lease.uuid, lease.fence, b"", session, requeue=requeue)
        case _:
            assert_never(outcome)


def encode_claim_request(request: ClaimRequest) -> dict[str, Any]:
    return {
        "number": request.number,
        "pools": [{"total": pool.total, "capacity": dict(pool.capacity)} for pool in request.pools],
        "max_suspects": request.max_suspects,
    }


def encode_note(note: Note) -> dict[str, Any]:
    lease = note.lease
    return {
        "uuid": lease.uuid,
        "fence": lease.fence,
        "session": lease.session,
        "kind": note.kind,
        "name": note.name,
        "data": note.data,
    }


def encode_signal(signal: NewSignal) -> dict[str, Any]:
    return {"name": signal.name, "id": signal.id, "payload": signal.payload, "keep": signal.keep}


def encode_fire(fire: FireRequest) -> dict[str, Any]:
    tasks = encode_tasks(fire.tasks)
    return {
        "name": fire.name,
        "rev": fire.rev,
        "tasks": tasks,
        "in_parts": must_be_in_parts(tasks),
        "next_at": fire.next_at,
        "last_at": fire.last_at,
    }


def encode(request: object) -> str:
    return msgspec.json.encode(request).decode()


# -- answers

_decode_history = Decoder(History).decode
_decode_idle = Decoder(dict[str, float | None]).decode
_decode_schedules = Decoder(list[Schedule]).decode
_decode_leases = Decoder(list[tuple[str, int]]).decode


def _to_history(text: str | None) -> History:
    """None: nothing has happened to the task."""
    return NO_HISTORY if text is None else _decode_history(text)


def _readable(policy: str, history: str | None, links: str | None) -> tuple[Policy, History, Links | None]:
    """All, decoded. If one cannot be, it has its defaults, and the task must end; the row keeps the text."""
    known_policy = DEFAULT
    known_history = NO_HISTORY
    known_links: Links | None = None
    try:
        known_history = _to_history(history)
        known_policy = policy_of(policy)
        known_links = decode_links(links)
    except msgspec.DecodeError:
        if known_history.reason not in UNQUEUED_REASONS:
            known_history = replace(known_history, reason="undecodable")
    return known_policy, known_history, known_links


def to_record(row: Any) -> Record:
    """From the columns of `record_columns`: with the claim that leases it, and its result."""
    policy, history, links = _readable(row["policy"], row["history"], row["links"])
    if row["result"] is not None:
        history = replace(history, result=row["result"])
    if row["holder"] is not None:
        history = replace(history, session=row["holder"], started=row["leased_at"])
    return Record(
        row["uuid"],
        row["source"],
        row["body"],
        policy,
        row["lane"],
        row["unique_key"],
        row["due"],
        row["seq"],
        row["added"],
        row["state"],
        history,
        links,
    )


def to_records(row: Any) -> list[Record]:
    """From the arrays of `records_v1`. A task that was just claimed has no state: it was ready."""
    if not row["uuids"]:
        return []
    try:
        return [
            Record(
                uuid, source, body, policy_of(policy), lane, unique, due, seq, added, state or "ready",
                _to_history(history), decode_links(links),
            )
            for uuid, source, body, policy, lane, unique, due, seq, added, state, history, links in _columns(row)
        ]  # fmt: skip
    except msgspec.DecodeError:  # of one of them
        return [_readable_record(*columns) for columns in _columns(row)]


def _readable_record(
    uuid: str,
    source: str,
    body: bytes,
    stored_policy: str,
    lane: str | None,
    unique: str | None,
    due: int,
    seq: int,
    added: int,
    state: State | None,
    stored_history: str | None,
    stored_links: str | None,
) -> Record:
    policy, history, links = _readable(stored_policy, stored_history, stored_links)
    return Record(uuid, source, body, policy, lane, unique, due, seq, added, state or "ready", history, links)


def _columns(row: Any) -> Iterable[Any]:
    return zip(
        row["uuids"],
        row["sources"],
        row["bodies"],
        row["policies"],
        row["lanes"],
        row["unique_keys"],
        row["dues"],
        row["seqs"],
        row["addeds"],
        row["states"],
        row["histories"],
        row["links"] or repeat(None, len(row["uuids"])),
        strict=True,
    )


def to_claim_result(row: Any) -> ClaimResult:
    records = to_records(row)
    number = row["number"]
    tasks = records[:number]
    chores = records[number:]
    if any(record.history.reason == "undecodable" for record in tasks):  # leased as runs: the database reads no policy
        chores += [record for record in tasks if record.history.reason == "undecodable"]
        tasks = [record for record in tasks if record.history.reason != "undecodable"]
    return ClaimResult(
        fence=row["fence"],
        tasks=tasks,
        chores=chores,
        schedules=_decode_schedules(row["schedules"]) if row["schedules"] else [],
        idle=_decode_idle(row["idle"]),
        woken=frozenset(row["woken"]),
        next_in=row["next_in"],
        more=row["more"],
        now=row["moment"],
        identity=StoreIdentity(row["data_set"], row["last_fence"]),
    )


def to_added(row: Any, tasks: Sequence[NewTask | Record]) -> list[Added]:
    if row["fresh"] is None:  # all of them are new
        return [Added(task.uuid, fresh=True) for task in tasks]
    return [Added(uuid, fresh) for uuid, fresh in zip(row["uuids"], row["fresh"], strict=True)]


def to_leases(text: str | None, session: str) -> list[Lease]:
    return [Lease(uuid, fence, session) for uuid, fence in _decode_leases(text)] if text else []
