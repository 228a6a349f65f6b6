"""A batch as the store keeps it: the arguments of its coordinator, and the parts that the coordinator has streamed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw, Struct

from onthedot.codec.body import Undecodable
from onthedot.stores.contract import Record

_NO_ITEMS = Raw(b'{"value":[]}')


class BatchRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The arguments of a coordinator: what a call of ``app.batch`` has asked for, and how it is split.

    count: how many items; of a list, how many it has
    sizes: of the parts, in order
    call: body of a call with all arguments, as the codec of the task writes it
    digest: of the arguments, to compare two requests of one key
    is_list: the parts get slices of the argument `items`, instead of a `count`
    existing: names that no item may have
    deadline: ms from the add to the end of the batch
    priority: of the parts; None: the task's own
    fallback: source of the parts, while the task is degraded
    degraded: the batch has one part and no top-up
    """

    count: int
    sizes: tuple[int, ...]
    call: Raw
    digest: str
    type: str = ""
    is_list: bool = False
    existing: tuple[str, ...] = ()
    deadline: int | None = None
    priority: int | None = None
    fallback: str = ""
    degraded: bool = False


class StoredFailure(Struct, frozen=True, omit_defaults=True):
    """The failure of a part."""

    type: str
    message: str
    uuid: str = ""
    source: str = ""
    state: Literal["failed", "cancelled"] = "failed"
    attempt: int = 1


class StoredPart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item of the coordinator's stream: a part that has ended.

    index: of the part, from 0; top-ups follow the parts of the request
    size: how many items it was asked for
    items: those that are kept, as a stored result
    attempt: of the part, when it ended
    round: how often the batch had been retried
    over: set on the last part of a batch without any item: attempts of the coordinator before its last retry. A later
        run that has more of them was retried
    ended: ms
    """

    index: int
    size: int
    items: Raw = _NO_ITEMS
    refused: dict[str, int] = {}
    error: StoredFailure | None = None
    attempt: int = 1
    round: int = 0
    over: int | None = None
    ended: int | None = None


class _StreamItem(Struct):
    value: StoredPart


class _CoordinatorBody(Struct):
    args: BatchRequest


class _KeptItems(Struct):
    value: list[Raw] = []
    open: list[Raw] = []


_read_body: Callable[[bytes], _CoordinatorBody] = msgspec.json.Decoder(_CoordinatorBody).decode
_read_part: Callable[[bytes], _StreamItem] = msgspec.json.Decoder(_StreamItem).decode
_read_items: Callable[[bytes | Raw], _KeptItems] = msgspec.json.Decoder(_KeptItems).decode


def read_request(record: Record) -> BatchRequest:
    """Raises Undecodable."""
    return decode_request(record.source, record.body)


def decode_request(source: str, body: bytes) -> BatchRequest:
    """Raises Undecodable, which names the source."""
    try:
        return _read_body(body).args
    except msgspec.MsgspecError as error:
        raise Undecodable(f"{source}: the stored batch cannot be read: {error}") from error


def read_part(item: bytes) -> StoredPart:
    """Raises Undecodable."""
    try:
        return _read_part(item).value
    except msgspec.MsgspecError as error:
        raise Undecodable(f"the stored part cannot be read: {error}") from error


def write_part(part: StoredPart) -> bytes:
    """In the form of a stored result, as all items of streams are."""
    return msgspec.json.encode(_StreamItem(part))


def count_items(part: StoredPart) -> int:
    """How many items of a part are kept."""
    stored = _read_items(part.items)
    return len(stored.value) + len(stored.open)


def decode_items(part: StoredPart, decode: Callable[[bytes], Any]) -> list[Any]:
    """The items of a part that are kept. decode: of results of its task; such a result may be no list."""
    if not count_items(part):
        return []
    return list(decode(bytes(part.items)))


class BatchCounts(NamedTuple):
    """How far a batch is, from its parts."""

    items: int
    done: int
    failed: int
    total: int


def batch_counts(request: BatchRequest, parts: Sequence[StoredPart]) -> BatchCounts:
    """A part that was streamed again, after a retry, counts by its last end."""
    last = {part.index: part for part in parts}
    return BatchCounts(
        items=sum(map(count_items, parts)),
        done=len(last),
        failed=sum(part.error is not None for part in last.values()),
        total=max(len(request.sizes), len(last)),
    )
