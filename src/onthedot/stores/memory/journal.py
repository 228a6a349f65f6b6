"""The journal of each task: errors of its attempts, its progress."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onthedot.stores.contract import Note


class Journal:
    def __init__(self) -> None:
        self._by_uuid: dict[str, dict[tuple[str, str], tuple[int, Note]]] = {}
        self._number = 0

    def write(self, note: Note) -> None:
        notes = self._by_uuid.setdefault(note.lease.uuid, {})
        key = (note.kind, note.name)
        if note.kind == "error" and key in notes:
            return
        self._number += 1
        notes.pop(key, None)  # a later progress has a later number, so that readers see it
        notes[key] = (self._number, note)

    def read(self, uuid: str, after: int, limit: int) -> Sequence[tuple[int, Note]]:
        return [entry for entry in self._by_uuid.get(uuid, {}).values() if entry[0] > after][:limit]

    def forget(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            self._by_uuid.pop(uuid, None)
