"""Entries of the change feed from stored transitions, of which a few are resolved to uuids."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from onthedot.stores.contract import ChangeEntry, State, Transition

Seq = TypeVar("Seq", bound=Hashable)
Seq_co = TypeVar("Seq_co", bound=Hashable, covariant=True)


class StoredTransitions(Protocol[Seq_co]):
    """Tasks of one source that one call has brought to one state."""

    @property
    def source(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def number(self) -> int: ...

    def newest(self, number: int) -> Sequence[Seq_co | str]:
        """The last tasks, by seq; by uuid if they were not kept."""
        ...


class StoredCall(Generic[Seq]):
    """One row of the log."""

    def __init__(self, at: int, parts: Sequence[StoredTransitions[Seq]]) -> None:
        self.at: int = at
        self.parts: Sequence[StoredTransitions[Seq]] = parts
        self.number: int = sum(part.number for part in parts)
        self._resolved: list[tuple[StoredTransitions[Seq], Sequence[Seq | str]]] = []

    def choose(self, number: int) -> list[Seq]:
        """Choose the newest transitions to resolve, at most this many; return the seqs of those without a uuid."""
        seqs: list[Seq] = []
        for part in reversed(self.parts):
            taken = min(number, part.number)
            if taken <= 0:
                break
            number -= taken
            tasks = part.newest(taken)
            self._resolved.insert(0, (part, tasks))
            seqs += [task for task in tasks if not isinstance(task, str)]
        return seqs

    def to_entry(self, uuids: Mapping[Seq, str]) -> ChangeEntry:
        """uuids: of the chosen tasks that are not deleted."""
        counts: dict[str, dict[State, int]] = {}
        for part in self.parts:
            by_state = counts.setdefault(part.source, {})
            by_state[part.state] = by_state.get(part.state, 0) + part.number
        return ChangeEntry(self.at, counts, list(self._transitions(uuids)))

    def _transitions(self, uuids: Mapping[Seq, str]) -> Iterable[Transition]:
        for part, tasks in self._resolved:
            for task in tasks:
                uuid = task if isinstance(task, str) else uuids.get(task)
                if uuid is not None:
                    yield Transition(self.at, uuid, part.source, part.state)


def choose_newest(calls: Sequence[StoredCall[Seq]], resolve: int) -> list[Seq]:
    """Choose the newest transitions of a page; return the seqs to look up."""
    seqs: list[Seq] = []
    for call in reversed(calls):
        if resolve <= 0:
            break
        seqs += call.choose(resolve)
        resolve -= call.number
    return seqs
