"""The last claim request of each session of this process."""

from __future__ import annotations

from typing import NamedTuple


class LastRequest(NamedTuple):
    number: int
    fence: int  # 0: it took nothing


class ClaimNumbers:
    """A claim that takes nothing writes nothing, so its number is known here only.

    The numbers outlive a rollback and a connection. If one were forgotten, the next request would look like one after a
    gap, and the leases of the session would be renewed: tasks whose outcomes are under way would run again.
    """

    def __init__(self) -> None:
        self._committed: dict[str, LastRequest] = {}
        self._uncommitted: dict[str, LastRequest | None] = {}  # None: the session was dropped
        self._data_set = ""
        self._fence = 0  # the last one that was given out

    def begin(self, data_set: str, fence: int) -> None:
        """A transaction begins. Numbers of other data, or of a later state of the data, are of no use."""
        if data_set != self._data_set or fence < self._fence:
            self._committed.clear()
        self._data_set = data_set
        self._fence = fence
        self._uncommitted.clear()

    def commit(self, fence: int) -> None:
        self._fence = fence
        for session, request in self._uncommitted.items():
            if request is None:
                self._committed.pop(session, None)
            else:
                self._committed[session] = request
        self._uncommitted.clear()

    def rollback(self) -> None:
        self._uncommitted.clear()

    def find(self, session: str) -> LastRequest | None:
        if session in self._uncommitted:
            return self._uncommitted[session]
        return self._committed.get(session)

    def set(self, session: str, request: LastRequest) -> None:
        self._uncommitted[session] = request

    def drop(self, session: str) -> None:
        self._uncommitted[session] = None
