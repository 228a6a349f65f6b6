"""Who is here, until when, and what they hold."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from onthedot.stores.contract import Record
from onthedot.stores.memory.tables import ClaimEntry

_GRAVES = 10_000  # how many dead names are remembered


class SessionEntry:
    __slots__ = ("claims", "info", "last", "name", "number", "suspects", "until")

    def __init__(self, name: str, until: float) -> None:
        self.name: str = name
        self.info: bytes | None = None  # None: it has only cancelled, it is no worker
        self.until: float = until
        self.claims: dict[ClaimEntry, None] = {}
        self.suspects: int = 0  # how many of them it runs
        self.number: int = 0
        self.last: tuple[ClaimEntry, ClaimEntry] = (ClaimEntry(0, name, 0), ClaimEntry(0, name, 0, chores=True))


class SessionTable:
    def __init__(self) -> None:
        self._alive: dict[str, SessionEntry] = {}
        self._dead: OrderedDict[str, None] = OrderedDict()
        self._first_death: float | None = None  # looked at in every turn, so it is kept

    def get(self, name: str) -> SessionEntry | None:
        session = self._alive.get(name)
        return session if session is not None and session.info is not None else None

    def heartbeat(self, name: str, info: bytes, until: float) -> SessionEntry | None:
        """None: it is dead, and stays so."""
        if name in self._dead:
            return None
        session = self.open(name, until)
        session.info, session.until = info, until
        self._look()
        return session

    def open(self, name: str, until: float) -> SessionEntry:
        """For somebody who cancels without being a worker."""
        session = self._alive.get(name)
        if session is None:
            session = self._alive[name] = SessionEntry(name, until)
        if session.info is None:
            session.until = until
        self._look()
        return session

    def close(self, name: str) -> SessionEntry | None:
        closed = self._alive.pop(name, None)
        self._look()
        return closed

    def reap_session(self, name: str) -> None:
        del self._alive[name]
        self._look()
        self._dead[name] = None
        if len(self._dead) > _GRAVES:
            self._dead.popitem(last=False)

    def overdue(self, now: float) -> list[SessionEntry]:
        if self._first_death is None or self._first_death > now:
            return []
        return [session for session in self._alive.values() if session.until <= now]

    def next_death(self) -> float | None:
        return self._first_death

    def _look(self) -> None:
        self._first_death = min((session.until for session in self._alive.values()), default=None)

    def names(self) -> list[str]:
        return [name for name, session in self._alive.items() if session.info is not None]

    def infos(self, now: float) -> Mapping[str, bytes]:
        """Of those that live, whether or not somebody has buried the others yet."""
        alive = [session for session in self._alive.values() if session.until > now]
        return {session.name: session.info for session in alive if session.info is not None}

    def hold(self, claim: ClaimEntry) -> None:
        self._alive[claim.session].claims[claim] = None

    def settled(self, claim: ClaimEntry, record: Record) -> None:
        """One of a claim's tasks has settled: it may have been its last, or a suspect."""
        session = self._alive[claim.session]
        if not claim.left:
            session.claims.pop(claim, None)
        if record.is_suspect and not claim.chores:
            session.suspects -= 1
