"""How records and messages are packed; the Lua side is `lua/lib/record_format.lua`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from onthedot.stores.contract import (
    DEFAULT,
    ENDED,
    NO_HISTORY,
    History,
    NewTask,
    Reason,
    Record,
    State,
)
from onthedot.stores.redis.link_format import PackedLinks, PackedWait, pack_links, to_links, to_wait
from onthedot.stores.redis.policy_format import (
    UNKNOWN_SOURCE,
    UnknownPolicy,
    known_policies,
    pack_policy,
    unreadable_policies,
)
from onthedot.stores.redis.uuid_format import pack_uuid, pack_uuids, uuid_at
from onthedot.stores.rules.records import UNQUEUED_REASONS, with_history

_TASK = Struct(">q6sH")  # due, added, length of the head
_HISTORY = Struct(">HI")  # lengths of head and error
_HEAD_LENGTH = Struct(">H")
_number = int.from_bytes  # looked up once: every record has two
encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode
_NO_LINKS = msgspec.Raw()


T = TypeVar("T")


def or_none(value: Any) -> Any:
    """A value of a script, in which nil is packed as False."""
    if value is False:
        return None
    return value


class _Head(msgspec.Struct, array_like=True, frozen=True, gc=False):
    policy: str
    lane: str | None = None
    unique: str | None = None
    links: msgspec.Raw = _NO_LINKS


class _HistoryHead(msgspec.Struct, array_like=True, frozen=True, gc=False):
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
    wait: PackedWait | None = None
    wait_until: int | None = None
    subscribed: bool | None = None  # some session is notified of its end
    revives: int = 0


class TaskGroup(msgspec.Struct, array_like=True):
    """New tasks that differ by uuid and body; a task with a unique key is a group of its own."""

    number: int
    digest: str
    at: int | None
    after: float
    lane: str | None
    unique: str | None
    links: PackedLinks | None = None


_MAX_HEADS = 1000  # remembered: the tasks of a group have equal ones, and the ends of a turn
UNREADABLE = (struct.error, LookupError, ValueError, TypeError, msgspec.MsgspecError)  # of a damaged record
_decode_head = lru_cache(_MAX_HEADS)(msgspec.msgpack.Decoder(_Head).decode)
_decode_history_head = lru_cache(_MAX_HEADS)(msgspec.msgpack.Decoder(_HistoryHead).decode)


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
            and (task.links is first.links or task.links == first.links)
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
    links = None if task.links is None else pack_links(task.links)
    return TaskGroup(1, digest, task.at, task.after, task.lane, task.unique, links)


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
        counts = (history.retries, history.crashes, history.earlier, history.started, history.hops, history.revives)
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
        head.started, head.ended, head.keep_until, result, error, head.hops, head.revives,
        None if head.wait is None else to_wait(head.wait), head.wait_until,
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
    links = to_links(bytes(head.links)) if head.links else None
    return Record(
        uuid, source, task[end:], policy, head.lane, head.unique, due, _number(seq), _number(added),
        cast("State", state), history, links,
    )  # fmt: skip


def to_result(packed_history: bytes, now: float) -> bytes | None:
    """The result in a history; None: it is no longer kept, or cannot be read."""
    try:
        head_length, error_length = _HISTORY.unpack_from(packed_history)
        start = 6 + head_length
        head = _decode_history_head(packed_history[6:start])
    except UNREADABLE:
        return None
    if head.stored % 2 and not (head.result_until and head.result_until <= now):
        return packed_history[start + error_length :]
    return None


def to_seen_record(
    seq: bytes, task: bytes, history: bytes | None, state: str = "ready", now: float = 0
) -> Record | None:
    """One that cannot be read has the reason "undecodable", and its defaults; None: its uuid cannot be read."""
    try:
        return to_record(seq, task, history, state, now)
    except UnknownPolicy as unknown:
        if unknown.digest not in unreadable_policies:
            raise
    except UNREADABLE:
        pass
    try:
        return _to_damaged_record(seq, task, history, state, now)
    except UNREADABLE:
        return None


def _to_damaged_record(seq: bytes, task: bytes, packed_history: bytes | None, state: str, now: float) -> Record:
    due, added, length = _TASK.unpack_from(task)
    uuid, end = uuid_at(task, 16 + length)
    head = _read_or(lambda: _decode_head(task[16 : 16 + length]), _Head(""))
    source = unreadable_policies.get(head.policy, UNKNOWN_SOURCE)
    known = known_policies.get(head.policy)
    if known is not None:
        source = known[0]
    history = NO_HISTORY
    if packed_history is not None:
        head_length, error_length = _HISTORY.unpack_from(packed_history.ljust(6, b"\0"))
        start = 6 + head_length
        changed = _read_or(lambda: _decode_history_head(packed_history[6:start]), None)
        if changed is not None:
            history = _unpack_history(packed_history, changed, start, error_length, now)
            state = changed.state or state
    if history.reason not in UNQUEUED_REASONS and state not in ENDED:
        history = with_history(history, reason="undecodable")
    links = _read_or(lambda: to_links(bytes(head.links)) if head.links else None, None)
    return Record(
        uuid, source, task[end:], DEFAULT, head.lane, head.unique, due, _number(seq), _number(added),
        cast("State", state), history, links,
    )  # fmt: skip


def _read_or(read: Callable[[], T], default: T) -> T:
    try:
        return read()
    except UNREADABLE:
        return default


class RecordRows(NamedTuple):
    """Of the answer of a claim."""

    records: list[Record]
    undecodable: list[Record]
    unnamed: list[bytes]  # seqs of records whose uuid cannot be read


def to_records(rows: Sequence[Any]) -> RecordRows:
    """Of the seqs in one, the tasks, and the histories if there are any."""
    seqs, tasks, histories = rows
    numbers = [seqs[start : start + 6] for start in range(0, len(seqs), 6)]
    try:
        return RecordRows(list(map(to_record, numbers, tasks, histories or repeat(None))), [], [])
    except UnknownPolicy as unknown:
        if unknown.digest not in unreadable_policies:
            raise
    except UNREADABLE:
        pass
    found = RecordRows([], [], [])
    for seq, task, history in zip(numbers, tasks, histories or repeat(None), strict=False):
        record = to_seen_record(seq, task or b"", history)
        if record is None:
            found.unnamed.append(seq)
        elif record.history.reason == "undecodable":
            found.undecodable.append(record)
        else:
            found.records.append(record)
    return found


def seq_bytes(seqs: Iterable[int]) -> list[bytes]:
    return [seq.to_bytes(6, "big") for seq in seqs]


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
