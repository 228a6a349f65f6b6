"""How records are packed; the Lua side is lua/records.lua."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import repeat
from struct import Struct
from typing import Any, cast

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
_NAMES = {key: name for name, key in _KEYS.items()}
_MOST = 10_000  # policies that are remembered: a declaration makes one, and its tasks share it
_ASKED, _PAST, _NOTE = Struct(">q6sH"), Struct(">HI"), Struct(">H")
_number = int.from_bytes  # looked up once: every record has two
_digests: dict[tuple[str, Policy], tuple[str, str]] = {}
_policies: dict[str, tuple[str, Policy]] = {}  # with the source whose tasks have it
encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode


class _Head(msgspec.Struct, array_like=True, gc=False):
    policy: str
    lane: str | None = None
    unique: str | None = None


_head = msgspec.msgpack.Decoder(_Head).decode


class UnknownPolicy(LookupError):
    """Of another process: its text must be read first."""


def policy_text(source: str, policy: Policy) -> tuple[str, str]:
    """Its digest, by which the tasks of a source name it, and as JSON with the source, without what is as always."""
    known = _digests.get((source, policy))
    if known is None:
        if len(_digests) >= _MOST:
            _digests.clear()
        said = {_KEYS[name]: value for name in _KEYS if (value := getattr(policy, name)) != getattr(DEFAULT, name)}
        text = msgspec.json.encode({"s": source, **said})
        digest = b64encode(sha256(text).digest()[:6]).decode()
        known = _digests[source, policy] = digest, text.decode()
    return known


def remember_policy(digest: bytes, text: bytes) -> None:
    if len(_policies) >= _MOST:
        _policies.clear()
    said = msgspec.json.decode(text)
    source = said.pop("s")
    _policies[digest.decode()] = source, msgspec.convert({_NAMES[key]: value for key, value in said.items()}, Policy)


def pack_policies(tasks: Iterable[NewTask | Record]) -> bytes:
    return encode(dict({policy_text(task.source, task.policy) for task in tasks}))


def head_of(task: NewTask | Record) -> bytes:
    digest = policy_text(task.source, task.policy)[0]
    if task.unique is not None:
        return encode((digest, task.lane, task.unique))
    if task.lane is not None:
        return encode((digest, task.lane))
    return encode((digest,))


def payloads(tasks: Sequence[NewTask]) -> Iterator[bytes]:
    yield pack_uuids([task.uuid for task in tasks])
    for task in tasks:
        yield head_of(task)
        yield task.body


def alike(tasks: Sequence[NewTask]) -> bool:
    """They differ by uuid and body alone: of no lane, without a key, not to expire, no suspects."""
    first = tasks[0]
    source, policy, at, after = first.source, first.policy, first.at, first.after
    if policy.expires is not None or policy.max_crashes <= 1:
        return False
    for task in tasks:
        if task.lane is not None or task.unique is not None or task.source != source:
            return False
        if task.policy is not policy and task.policy != policy:
            return False
        if task.at != at or task.after != after:
            return False
    return True


def pack_alike(tasks: Sequence[NewTask]) -> list[Any]:
    """What they share, their uuids, then the body of each."""
    first = tasks[0]
    digest, text = policy_text(first.source, first.policy)
    return [
        first.source, digest, text, first.policy.boost, "" if first.at is None else first.at, repr(first.after),
        encode((digest,)), pack_uuids([task.uuid for task in tasks]), *[task.body for task in tasks],
    ]  # fmt: skip


def times(tasks: Sequence[NewTask]) -> list[tuple[int | None, float]]:
    return [(task.at, task.after) for task in tasks]


def pack_copies(records: Sequence[Record]) -> tuple[bytes, list[bytes]]:
    """Of another store's: their numbers, and head, uuid, body and error of each."""
    numbers: list[Any] = []
    words: list[bytes] = []
    for record in records:
        history = record.history
        counts = (history.retries, history.crashes, history.earlier, history.started, history.hops)
        numbers.append((record.due, record.added, *counts, history.error is not None))
        words += (head_of(record), pack_uuid(record.uuid), record.body, history.error or b"")
    return encode(numbers), words


def to_past(packed: bytes, now: float) -> tuple[str, int | None, History]:
    """state ("" if its place says it), due if it has changed, past."""
    length, wrong = _PAST.unpack_from(packed)
    start = 6 + length
    h = decode(packed[6:start])
    error = packed[start : start + wrong] if h[13] >= 2 else None
    shown = h[13] % 2 and not (h[12] and h[12] <= now)
    result = packed[start + wrong :] if shown else None
    history = History(
        h[2], h[3], h[4], h[5], h[6], h[7], h[8] or None, h[9] or None, h[10] or None, h[11] or None, result, error,
        h[14],
    )  # fmt: skip
    return h[0] or "", h[1] or None, history


def to_record(seq: bytes, asked: bytes, packed: bytes | None, state: str = "ready", now: float = 0) -> Record:
    due, added, length = _ASKED.unpack_from(asked)
    end = 16 + length
    head = _head(asked[16:end])
    uuid, end = uuid_at(asked, end)
    history = NO_HISTORY
    if packed is not None:
        kept, changed, history = to_past(packed, now)
        due, state = changed if changed is not None else due, kept or state
    known = _policies.get(head.policy)
    if known is None:
        raise UnknownPolicy(head.policy)
    source, policy = known
    return Record(
        uuid, source, asked[end:], policy, head.lane, head.unique, due, _number(seq), _number(added),
        cast("State", state), history,
    )  # fmt: skip


def to_records(rows: Sequence[Any]) -> list[Record]:
    seqs, asked, history = rows
    numbers = [seqs[start : start + 6] for start in range(0, len(seqs), 6)]
    return list(map(to_record, numbers, asked, history or repeat(None)))


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


def to_note(packed: bytes) -> tuple[int, int, str, bytes]:
    """number, fence, session, data."""
    (length,) = _NOTE.unpack_from(packed)
    number, fence, session = decode(packed[2 : 2 + length])
    return number, fence, session, packed[2 + length :]


def unpack_message(packed: bytes) -> tuple[list[Any], bytes]:
    """What has happened, and to whom."""
    (length,) = _NOTE.unpack_from(packed)
    return decode(packed[2 : 2 + length]), packed[2 + length :]


def unpack_leased(said: bytes) -> list[Record]:
    """What was handed out: seq, length and task, one after the other."""
    records: list[Record] = []
    address = 0
    while address < len(said):
        start = address + 10
        address = start + int.from_bytes(said[start - 4 : start], "big")
        records.append(to_record(said[start - 10 : start - 4], said[start:address], None))
    return records


def pack_outcomes(outcomes: Sequence[Outcome]) -> tuple[bytes, list[bytes]]:
    """In groups: what came of one claim in one way is said once, and so is what all of a group say.

    What is opaque comes apart.
    """
    groups: list[list[Any]] = []
    uuids: list[list[str]] = []  # by group
    words: list[list[bytes]] = []  # likewise
    last: tuple[Any, ...] | None = None
    for outcome in outcomes:
        kind, data = _kind(outcome)
        if kind == last and outcome.effects is None:
            uuids[-1].append(outcome.lease.uuid)
            words[-1].append(data)
            continue
        adds = None if outcome.effects is None else times(outcome.effects.tasks)
        groups.append([kind[0], kind[1], 0, *kind[2:], adds])
        uuids.append([outcome.lease.uuid])
        words.append([data] if outcome.effects is None else [data, *payloads(outcome.effects.tasks)])
        last = kind if adds is None else None
    for group, names, said in zip(groups, uuids, words, strict=True):
        same = len(said) > 1 and group[-1] is None and said.count(said[0]) == len(said)
        group[2] = len(names)
        group.append(same)
        if same:
            del said[1:]
        said.insert(0, pack_uuids(names))
    return encode(groups) if groups else b"", [word for said in words for word in said]


def _kind(outcome: Outcome) -> tuple[tuple[Any, ...], bytes]:
    """fence, session, state, keep, keep_result, after, counted; and what it says."""
    lease = outcome.lease
    match outcome:
        case Completed():
            kind = (lease.fence, lease.session, "succeeded", outcome.keep, outcome.keep_result, None, False)
            return kind, outcome.result
        case Ended():
            return (lease.fence, lease.session, outcome.state, outcome.keep, None, None, False), outcome.error
        case Requeued():
            return (lease.fence, lease.session, None, 0, None, outcome.after, outcome.counted), outcome.error
