"""Hints: to the listeners of this process at once, to other processes by datagram. After the commit, and never waiting.

Every session that listens has a socket in ``<db>-sessions``, named after it: nobody has to look up where it is.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from onthedot.stores.hint_streams import HintBuffer, HintHub
from onthedot.stores.sqlite.notifications import Notifications

_LONGEST = 100  # bytes of a socket's path; the system's limit is 104 or 108
_MOST = 30  # names in one datagram: a source has up to 200 letters
_Message = tuple[list[str], dict[str, str], list[str], bool]  # sources, cancel, ended, a session has come


class SessionNotification(msgspec.Struct):
    """What one session is to be told."""

    sources: set[str] = msgspec.field(default_factory=set[str])
    cancel: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    ended: list[str] = msgspec.field(default_factory=list[str])
    peers: bool = False

    def datagrams(self) -> Iterable[bytes]:
        parts: list[_Message] = [(part, {}, [], self.peers) for part in _parts(list(self.sources))]
        parts += [([], {uuid: self.cancel[uuid] for uuid in part}, [], False) for part in _parts(list(self.cancel))]
        parts += [([], {}, part, False) for part in _parts(self.ended)]
        return map(msgspec.json.encode, parts or [([], {}, [], True)])


def _parts(names: list[str]) -> Iterable[list[str]]:
    return (names[start : start + _MOST] for start in range(0, len(names), _MOST))


class DatagramNotifier(HintHub):
    def __init__(self, folder: Path, app: str) -> None:
        super().__init__()
        self.folder: Path = folder
        self._app = app
        self._sockets: dict[str, socket.socket] = {}
        self._mouth: socket.socket | None = None
        self._unsent: list[tuple[str, bytes]] = []
        self.watch: Callable[[int], object] = lambda _: None
        self.unwatch: Callable[[int], object] = lambda _: None

    # -- listening

    def add(self, session: str) -> HintBuffer:
        if session not in self._sockets and (ear := self._bound(session)) is not None:
            self._sockets[session] = ear
            self.watch(ear.fileno())
        return super().add(session)

    def remove(self, session: str, listener: HintBuffer) -> None:
        super().remove(session, listener)
        if session not in self and (ear := self._sockets.pop(session, None)) is not None:
            self.unwatch(ear.fileno())
            ear.close()
            (self.folder / self._name(session)).unlink(missing_ok=True)

    def _bound(self, session: str) -> socket.socket | None:
        """None: no sockets here; the poll interval has to do."""
        path = self.folder / self._name(session)
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ear.setblocking(False)
        try:
            path.unlink(missing_ok=True)
            self._at(path, ear.bind)
        except OSError:
            ear.close()
            return None
        return ear

    def sweep(self) -> None:
        """The addresses of those who died while they listened."""
        for left in self.folder.glob("*.hint"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as knock:
                try:
                    self._at(left, knock.connect)
                except OSError:
                    left.unlink(missing_ok=True)

    def _name(self, session: str) -> str:
        return hashlib.blake2b(f"{self._app}/{session}".encode(), digest_size=10).hexdigest() + ".hint"

    def _at(self, path: Path, do: Callable[[str], object]) -> None:
        """With a path that is short enough for a socket: if need be by way of the open folder."""
        if len(os.fsencode(path)) <= _LONGEST:
            do(str(path))
            return
        folder = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            do(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)

    def fds(self) -> list[int]:
        return [ear.fileno() for ear in self._sockets.values()]

    def receive(self, fd: int) -> bool:
        """Reads what has come; True: a session has come somewhere."""
        peers = False
        for session, ear in list(self._sockets.items()):
            if ear.fileno() != fd:
                continue
            try:
                while True:
                    message = msgspec.json.decode(ear.recv(65536), type=_Message)
                    peers = peers or message[3]
                    if any(message[:3]):
                        super().notify(session, *message[:3])
            except (OSError, msgspec.DecodeError):
                pass  # nothing more, closed meanwhile, or a stranger's word
        return peers

    # -- telling

    def publish(self, told: Sequence[Notifications], workers: Iterable[str]) -> None:
        news: dict[str, SessionNotification] = {}
        for each in told:
            sources = each.woken | each.sooner
            for worker in workers if sources or each.peers else ():
                if worker != each.but:
                    its = news.setdefault(worker, SessionNotification())
                    its.sources |= sources
                    its.peers = its.peers or each.peers
            for session, uuid, reason in each.cancel:
                news.setdefault(session, SessionNotification()).cancel[uuid] = reason
            for session, uuids in each.ended.items():
                news.setdefault(session, SessionNotification()).ended += uuids
        for session, its in news.items():
            if session not in self:
                if not os.access(self.folder / self._name(session), os.F_OK):
                    continue
                self._unsent += [(self._name(session), datagram) for datagram in its.datagrams()]
            elif its.sources or its.cancel or its.ended:
                self.notify(session, its.sources, its.cancel, its.ended)
        self.send()

    def send(self) -> bool:
        """True: some receiver's queue is full; what it would lose is kept for a moment."""
        if not self._unsent:
            return False
        if self._mouth is None:
            self._mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._mouth.setblocking(False)
        mouth, full, nobody = self._mouth, list[tuple[str, bytes]](), set[str]()
        for name, datagram in self._unsent:
            if name in nobody:
                continue
            try:
                self._at(self.folder / name, partial(mouth.sendto, datagram))
            except BlockingIOError:
                full.append((name, datagram))
            except ConnectionRefusedError:  # who listened there has died
                (self.folder / name).unlink(missing_ok=True)
            except OSError:
                nobody.add(name)
        self._unsent = full[-1000:]
        return bool(full)

    def clear(self) -> None:
        """The store is shut: nothing more is said."""
        self._unsent = []
        if self._mouth is not None:
            self._mouth.close()
            self._mouth = None

    def after_fork(self) -> None:
        """What was bound is the parent's."""
        for each in (*self._sockets.values(), *((self._mouth,) if self._mouth else ())):
            each.close()
