"""Entries of the stream of changes (lua/lib/change_log.lua), and their way to entries of the change feed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from onthedot.stores.contract import State
from onthedot.stores.redis.record_format import seq_bytes
from onthedot.stores.redis.uuid_format import count_uuids, to_uuids
from onthedot.stores.rules.change_log import StoredCall

_SEQ = 6  # bytes


class _Seqs(NamedTuple):
    source: str
    state: State
    packed: bytes

    @property
    def number(self) -> int:
        return len(self.packed) // _SEQ

    def newest(self, number: int) -> Sequence[bytes | str]:
        return [self.packed[at : at + _SEQ] for at in range(len(self.packed) - _SEQ * number, len(self.packed), _SEQ)]


class _Ranges(NamedTuple):
    """The first and the last of consecutive seqs, in turn."""

    source: str
    state: State
    packed: bytes

    @property
    def number(self) -> int:
        return sum(map(len, self._ranges()))

    def newest(self, number: int) -> Sequence[bytes | str]:
        found: list[bytes] = []
        for seqs in reversed(list(self._ranges())):
            taken = min(number - len(found), len(seqs))
            found[:0] = seq_bytes(seqs[len(seqs) - taken :])
        return found

    def _ranges(self) -> Iterator[range]:
        for at in range(0, len(self.packed), 2 * _SEQ):
            first = int.from_bytes(self.packed[at : at + _SEQ], "big")
            last = int.from_bytes(self.packed[at + _SEQ : at + 2 * _SEQ], "big")
            yield range(first, last + 1)


class _Uuids(NamedTuple):
    """Of tasks that were not kept."""

    source: str
    state: State
    packed: bytes

    @property
    def number(self) -> int:
        return count_uuids(self.packed)

    def newest(self, number: int) -> Sequence[bytes | str]:
        return list(to_uuids(self.packed))[-number:]


def to_call(fields: dict[bytes, bytes]) -> StoredCall[bytes]:
    at = int(fields.pop(b"at"))
    return StoredCall(at, [_part(field.decode(), packed) for field, packed in fields.items()])


def _part(field: str, packed: bytes) -> _Seqs | _Ranges | _Uuids:
    kind, _, name = field.partition(":")
    match kind:
        case "run":
            return _Ranges(*_source_and_state(name), packed)
        case "gone":
            return _Uuids(*_source_and_state(name), packed)
        case _:
            return _Seqs(*_source_and_state(field), packed)


def _source_and_state(name: str) -> tuple[str, State]:
    state, _, source = name.partition(":")
    return source, msgspec.convert(state, State)
