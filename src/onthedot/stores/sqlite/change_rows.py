"""Rows of the change log, and their way to entries of the change feed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, Struct
from msgspec.json import Decoder, decode

from onthedot.stores.contract import State
from onthedot.stores.rules.change_log import StoredCall


class LoggedTransitions(Struct, array_like=True, gc=False):
    """Tasks of one source that one call has brought to one state: seqs, or uuids of tasks that were not kept."""

    source: str
    state: str
    number: int
    tasks: list[int | str]


class _ReadTransitions(Struct, array_like=True, gc=False):
    """The same; the tasks stay encoded, since most reads need the number only."""

    source: str
    state: State
    number: int
    tasks: Raw

    def newest(self, number: int) -> Sequence[int | str]:
        tasks: list[int | str] = decode(self.tasks)
        return tasks[-number:]


_decode_parts = Decoder(list[_ReadTransitions]).decode


def to_call(at: int, text: str) -> StoredCall[int]:
    return StoredCall(at, _decode_parts(text))
