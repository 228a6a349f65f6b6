"""Streams: the items that a task saves while it runs, as its journal keeps them and as readers get them.

One note of kind `item` holds the items that gathered since the last write. Its name is ``epoch/first``: the epoch is
the fence of the claim that began the stream, `first` the number of items before it. Its data is a JSON array of stored
results (`codec.body` has their form).
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Raw, Struct

from onthedot.errors import ArgumentError
from onthedot.stores.contract import Note

if TYPE_CHECKING:
    from onthedot.stores.contract import Record

MAX_NOTE = 1 << 20  # bytes of one note
MAX_ITEM = MAX_NOTE - 2  # bytes of one item: a note of it alone has two brackets
MAX_STREAM = 64 << 20  # bytes of all notes of a task
STREAM_KEEP = 60_000  # ms that an ended stream is kept at least: its readers have the last items to read

EntryKind: TypeAlias = Literal["item", "part", "end"]


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One entry of ``handle.stream()``."""

    cursor: str
    """Continue after this entry with ``stream(after=cursor)``; it serves as the id of a server-sent event."""
    number: int
    """Counts from 1 without gaps."""
    kind: EntryKind
    """``item``, ``part`` (of a batch) or ``end``, which is the last one."""
    data: Any
    """The item; of ``end``, the state in which the task has ended."""


class Cursor(NamedTuple):
    """How far a reader has read: `number` items of an epoch. Epoch 0: none."""

    epoch: int = 0
    number: int = 0

    def __str__(self) -> str:
        """
        >>> str(Cursor(7, 12))
        '7-12'
        """
        return f"{self.epoch}-{self.number}"


_CURSOR = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")


def parse_cursor(text: str) -> Cursor:
    """
    >>> parse_cursor("7-12"), parse_cursor("")
    (Cursor(epoch=7, number=12), Cursor(epoch=0, number=0))
    """
    if text == "":
        return Cursor()
    found = _CURSOR.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ArgumentError(f'after={text!r} is no cursor of a stream: pass the cursor of an entry, or "" for all')
    return Cursor(int(found[1]), int(found[2]))


class ItemNote(NamedTuple):
    """A note of kind `item`, whose items are read when they are needed."""

    epoch: int
    first: int  # items before it
    data: bytes

    def items(self) -> list[bytes]:
        """The stored items."""
        return [bytes(item) for item in _read_items(self.data)]

    @property
    def last(self) -> int:
        """Items up to its end."""
        return self.first + len(_read_items(self.data))


_read_items: Callable[[bytes], list[Raw]] = msgspec.json.Decoder(list[Raw]).decode


def read_note(note: Note) -> ItemNote:
    """
    >>> from onthedot.stores.contract import Lease
    >>> note = read_note(Note(Lease("a", 7, "w"), "item", "7/3", b'[{"value":1},{}]'))
    >>> note.first, note.last, note.items()
    (3, 5, [b'{"value":1}', b'{}'])
    """
    epoch, _, first = note.name.partition("/")
    return ItemNote(int(epoch), int(first), note.data)


def note_name(epoch: int, first: int) -> str:
    return f"{epoch}/{first}"


def note_data(items: Sequence[bytes]) -> bytes:
    """items: none is empty."""
    return b"[" + b",".join(items) + b"]"


class StreamedItems(Struct, frozen=True):
    """The result of a stream: its items are in the journal and are not stored a second time."""

    epoch: int
    count: int

    def encode(self) -> bytes:
        """
        >>> StreamedItems(7, 12).encode()
        b'{"items":[7,12]}'
        """
        return b'{"items":[%d,%d]}' % (self.epoch, self.count)


_MARK = b'{"items":'  # no other result begins with it


class _StoredItems(Struct, forbid_unknown_fields=True):
    items: tuple[int, int]


def is_reference(result: bytes) -> bool:
    """Whether it refers to the items of a stream."""
    return result.startswith(_MARK)


def streamed_items(record: Record) -> StreamedItems | None:
    """The result of a stream that has succeeded; None: any other task."""
    data = record.history.result
    if data is None or record.state != "succeeded" or not is_reference(data):
        return None
    return StreamedItems(*msgspec.json.decode(data, type=_StoredItems).items)


class StreamRunProtocol(Protocol):
    """The stream of one run, for the code of its task."""

    @property
    def streamed(self) -> int:
        """How many items are saved. Read before the first one is yielded, it continues the stream."""
        ...

    async def items(self) -> Sequence[bytes]:
        """The saved items, in their stored form. It continues the stream, like `streamed`."""
        ...

    async def save(self, items: AsyncGenerator[object, None], encode: Callable[[object], bytes]) -> StreamedItems:
        """Saves what the generator yields, to its end."""
        ...
