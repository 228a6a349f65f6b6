"""How records, outcomes and messages are packed; the Lua side is `lua/lib/records.lua`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import repeat
from struct import Struct
from typing import Any, NamedTuple, cast

import msgspec

from onthedot.stores.contract import (
    DEFAULT,
    NO_HISTORY,
    Completed,
    Ended,
    History,
    NewTask,
    Outcome,
    Policy,
    Reason,
    Record,
    Requeued,
    Schedule,
    State,
)
from onthedot.stores.redis.uuid_format import pack_uuid, pack_uuids, uuid_at

_KEYS = {
    "priority": "p", "boost": "b", "cost": "c", "on_conflict": "k", "unique_for": "u", "expires": "x",
    "max_crashes": "m", "tags": "t", "reply_to": "r",
}  # fmt: skip
assert tuple(_KEYS) == Policy.__struct_fields__, "a field of Policy without a key would not be stored"
_NAMES = {key: name for name, key in _KEYS.items()}
_MAX_POLICIES = 10_000  # remembered; a definition has one, and its tasks share it
_TASK = Struct(">q6sH")  # due, added, length of the head
_HISTORY = Struct(">HI")  # lengths of head and error
_HEAD_LENGTH = Struct(">H")
_number = int.from_bytes  # looked up once: every record has two
_digests: dict[tuple[str, Policy], PackedPolicy] = {}
known_policies: dict[str, tuple[str, Policy]] = {}  # with the source of its tasks
encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode


class PackedPolicy(NamedTuple):
    digest: str
    text: str


class _Head(msgspec.Struct, array_like=True, gc=False):
    policy: str
    lane: str | None = None
    unique: str | None = None


class _HistoryHead(msgspec.Struct, array_like=True, gc=False):
    state: State | None  # None: its place decides
    due: int | None  # None: unchanged
    reason: Reason
    retries: int
    crashes: int
    earlier: int
    cancel_requested: bool
    settled_fence: int
    session: str | None
    started: int | None
    ended: int | None
    keep_until: int | None
    result_until: int | None
    stored: int  # 1: a result, 2: an error, 3: both
    hops: int


class TaskGroup(msgspec.Struct, array_like=True):
    """New tasks that differ by uuid and body; a task with a unique key is a group of its own."""

    number: int
    digest: str
    at: int | None
    after: float
    lane: str | None
    unique: str | None


class OutcomeGroup(msgspec.Struct, array_like=True):
    """Consecutive outcomes that share claim, kind and times."""

    fence: int
    session: str
    state: str | None
    keep: int
    keep_result: int | None
    after: float | None
    counted: bool
    number: int = 1
    same_data: bool = False
    effects: list[TaskGroup] | None = None
    new_tasks: int = 0


_decode_head = msgspec.msgpack.Decoder(_Head).decode
_decode_history_head = msgspec.msgpack.Decoder(_HistoryHead).decode


class UnknownPolicy(LookupError):
    """Another process has stored this policy: its text must be read first."""


def pack_policy(source: str, policy: Policy) -> PackedPolicy:
    """The digest, by which tasks of the source refer to it, and JSON with the source, without default values."""
    known = _digests.get((source, policy))
    if known is None:
        if len(_digests) >= _MAX_POLICIES:
            _digests.clear()
        changed = {_KEYS[name]: value for name in _KEYS if (value := getattr(policy, name)) != getattr(DEFAULT, name)}
        text = msgspec.json.encode({"s": source, **changed})
        digest = b64encode(sha256(text).digest()[:6]).decode()
        known = PackedPolicy(digest, text.decode())
        _digests[source, policy] = known
    return known


def remember_policy(digest: bytes, text: bytes) -> None:
    if len(known_policies) >= _MAX_POLICIES:
        known_policies.clear()
    fields = msgspec.json.decode(text)
    source = fields.pop("s")
    policy = msgspec.convert({_NAMES[key]: value for key, value in fields.items()}, Policy)
    known_policies[digest.decode()] = source, policy


def group_tasks(tasks: Iterable[NewTask], policies: dict[str, str]) -> list[TaskGroup]:
    """In runs, so that the order of the tasks is kept. Digest and text of their policies are added to `policies`."""
    groups: list[TaskGroup] = []
    first: NewTask | None = None
    for task in tasks:
        if (
            first is not None
            and (task.policy is first.policy or task.policy == first.policy)
            and task.source == first.source
            and task.at == first.at
            and task.after == first.after
            and task.lane == first.lane
            and task.unique is None
            and first.unique is None
        ):
            groups[-1].number += 1
        else:
            groups.append(_group(task, policies))
            first = task
    return groups


def _group(task: NewTask, policies: dict[str, str]) -> TaskGroup:
    digest, text = pack_policy(task.source, task.policy)
    policies[digest] = text
    return TaskGroup(1, digest, task.at, task.after, task.lane, task.unique)


def pack_tasks(tasks: Sequence[NewTask]) -> list[bytes]:
    """All uuids in one, then the body of each."""
    return [pack_uuids([task.uuid for task in tasks]), *[task.body for task in tasks]]


def pack_copies(records: Sequence[Record], policies: dict[str, str]) -> tuple[bytes, list[bytes]]:
    """Of records of another store: their numbers, and uuid, body and error of each."""
    numbers: list[Any] = []
    payloads: list[bytes] = []
    for record in records:
        history = record.history
        digest, text = pack_policy(record.source, record.policy)
        policies[digest] = text
        group = TaskGroup(1, digest, record.due, 0, record.lane, record.unique)
        counts = (history.retries, history.crashes, history.earlier, history.started, history.hops)
        numbers.append((group, record.added, *counts, history.error is not None))
        payloads += (pack_uuid(record.uuid), record.body, history.error or b"")
    return encode(numbers), payloads


def _unpack_history(packed: bytes, head: _HistoryHead, start: int, error_length: int, now: float) -> History:
    """start: of the error; behind it is the result."""
    result = error = None
    if head.stored % 2 and not (head.result_until and head.result_until <= now):
        result = packed[start + error_length :]
    if head.stored >= 2:
        error = packed[start : start + error_length]
    return History(
        head.reason, head.retries, head.crashes, head.earlier, head.cancel_requested, head.settled_fence, head.session,
        head.started, head.ended, head.keep_until, result, error, head.hops,
    )  # fmt: skip


def to_record(seq: bytes, task: bytes, packed_history: bytes | None, state: str = "ready", now: float = 0) -> Record:
    due, added, length = _TASK.unpack_from(task)
    end = 16 + length
    head = _decode_head(task[16:end])
    uuid, end = uuid_at(task, end)
    history = NO_HISTORY
    if packed_history is not None:
        head_length, error_length = _HISTORY.unpack_from(packed_history)
        start = 6 + head_length
        changed = _decode_history_head(packed_history[6:start])
        history = _unpack_history(packed_history, changed, start, error_length, now)
        if changed.due is not None:
            due = changed.due
        state = changed.state or state
    known = known_policies.get(head.policy)
    if known is None:
        raise UnknownPolicy(head.policy)
    source, policy = known
    return Record(
        uuid, source, task[end:], policy, head.lane, head.unique, due, _number(seq), _number(added),
        cast("State", state), history,
    )  # fmt: skip


def to_records(rows: Sequence[Any]) -> list[Record]:
    """Of the seqs in one, the tasks, and the histories if there are any."""
    seqs, tasks, histories = rows
    numbers = [seqs[start : start + 6] for start in range(0, len(seqs), 6)]
    return list(map(to_record, numbers, tasks, histories or repeat(None)))


def seq_bytes(seqs: Iterable[int]) -> list[bytes]:
    return [seq.to_bytes(6, "big") for seq in seqs]


def to_schedule(name: bytes, packed: bytes, rule: bytes) -> Schedule:
    digest, next_at, rev, paused, last_at, runs, incoming = decode(packed)
    nothing = (False, None)
    return Schedule(
        name.decode(), rule, digest, None if next_at in nothing else next_at, rev, bool(paused),
        None if last_at in nothing else last_at, runs, bool(incoming),
    )  # fmt: skip


def pack_schedule(schedule: Schedule) -> tuple[object, ...]:
    """Without its rule, which is opaque to the server."""
    return (
        schedule.name, schedule.definition_digest, schedule.next_at, schedule.rev, schedule.paused, schedule.last_at,
        schedule.runs, schedule.incoming,
    )  # fmt: skip


def unpack_message(packed: bytes) -> tuple[list[Any], bytes]:
    """The head, and what follows it."""
    (length,) = _HEAD_LENGTH.unpack_from(packed)
    return decode(packed[2 : 2 + length]), packed[2 + length :]


def unpack_leased(packed: bytes) -> list[Record]:
    """Tasks of a hand-off: seq, length and task in turn."""
    records: list[Record] = []
    end = 0
    while end < len(packed):
        start = end + 10
        end = start + int.from_bytes(packed[start - 4 : start], "big")
        records.append(to_record(packed[start - 10 : start - 4], packed[start:end], None))
    return records


class _Run(NamedTuple):
    group: OutcomeGroup
    uuids: list[str]
    data: list[bytes]
    new_tasks: list[bytes]


def pack_outcomes(outcomes: Sequence[Outcome], policies: dict[str, str]) -> tuple[bytes, list[bytes]]:
    """Groups, and their payloads: what a group shares is sent once."""
    runs = _runs(outcomes, policies)
    payloads: list[bytes] = []
    for group, uuids, data, new_tasks in runs:
        group.number = len(uuids)
        group.same_data = len(data) > 1 and data.count(data[0]) == len(data)
        payloads.append(pack_uuids(uuids))
        payloads += data[:1] if group.same_data else data
        payloads += new_tasks
    return encode([run.group for run in runs]) if runs else b"", payloads


def _runs(outcomes: Sequence[Outcome], policies: dict[str, str]) -> list[_Run]:
    runs: list[_Run] = []
    last: tuple[Any, ...] | None = None
    for outcome in outcomes:
        kind, data = _kind(outcome)
        effects = outcome.effects
        if kind == last and effects is None:
            runs[-1].uuids.append(outcome.lease.uuid)
            runs[-1].data.append(data)
            continue
        group = OutcomeGroup(*kind)
        new_tasks: list[bytes] = []
        last = kind
        if effects is not None:
            group.effects = group_tasks(effects.tasks, policies)
            group.new_tasks = len(effects.tasks)
            new_tasks = pack_tasks(effects.tasks)
            last = None
        runs.append(_Run(group, [outcome.lease.uuid], [data], new_tasks))
    return runs


def _kind(outcome: Outcome) -> tuple[tuple[Any, ...], bytes]:
    """fence, session, state, keep, keep_result, after, counted; and its result or error."""
    lease = outcome.lease
    match outcome:
        case Completed():
            kind = (lease.fence, lease.session, "succeeded", outcome.keep, outcome.keep_result, None, False)
            return kind, outcome.result
        case Ended():
            return (lease.fence, lease.session, outcome.state, outcome.keep, None, None, False), outcome.error
        case Requeued():
            return (lease.fence, lease.session, None, 0, None, outcome.after, outcome.counted), outcome.error
