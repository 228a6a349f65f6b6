"""Hints: to the listeners of this process directly, to other processes by datagram; after the commit, without waiting.

Every session that listens has a socket in ``<db>-sessions``, which is named after it, so no lookup is needed.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from onthedot.stores.hint_streams import HintBuffer, HintHub
from onthedot.stores.rules.notifications import Notifications

_MAX_PATH = 100  # bytes of a socket's path; the system's limit is 104 or 108
_MAX_NAMES = 30  # in one datagram: a source has up to 200 letters
_MAX_UNSENT = 1000  # datagrams that wait for a receiver


class SessionNotification(msgspec.Struct):
    """Changes for one session."""

    sources: set[str] = msgspec.field(default_factory=set[str])
    cancel_requests: dict[str, str] = msgspec.field(default_factory=dict[str, str])  # uuid → reason
    ended: list[str] = msgspec.field(default_factory=list[str])
    new_items: list[str] = msgspec.field(default_factory=list[str])
    recheck: bool = False
    events: bool = False
    session_joined: bool = False

    @property
    def has_hint(self) -> bool:
        return bool(self.sources or self.cancel_requests or self.ended or self.new_items or self.recheck or self.events)

    def datagrams(self) -> Iterable[bytes]:
        cancels = self.cancel_requests
        parts = [
            *(SessionNotification(sources=set(names)) for names in _parts(list(self.sources))),
            *(
                SessionNotification(cancel_requests={uuid: cancels[uuid] for uuid in names})
                for names in _parts(list(cancels))
            ),
            *(SessionNotification(ended=names) for names in _parts(self.ended)),
            *(SessionNotification(new_items=names) for names in _parts(self.new_items)),
        ]
        if self.recheck or self.events or self.session_joined:
            parts.append(
                SessionNotification(recheck=self.recheck, events=self.events, session_joined=self.session_joined)
            )
        return map(msgspec.json.encode, parts)


def _parts(names: list[str]) -> Iterable[list[str]]:
    return (names[start : start + _MAX_NAMES] for start in range(0, len(names), _MAX_NAMES))


class Watcher(Protocol):
    """A thread that polls file descriptors."""

    def watch(self, fd: int) -> None: ...
    def unwatch(self, fd: int) -> None: ...


class DatagramNotifier(HintHub):
    """The hints of one store."""

    def __init__(self, folder: Path, app: str) -> None:
        super().__init__()
        self.folder: Path = folder
        self._app = app
        self._sockets: dict[str, socket.socket] = {}
        self._sender: socket.socket | None = None
        self._unsent: list[tuple[str, bytes]] = []
        self._watcher: Watcher | None = None

    def attach(self, watcher: Watcher) -> None:
        """This thread calls `receive` for the sockets from now on."""
        self._watcher = watcher
        for receiver in self._sockets.values():
            watcher.watch(receiver.fileno())

    # -- receive

    def add(self, session: str) -> HintBuffer:
        if session not in self._sockets and (receiver := self._bind(session)) is not None:
            self._sockets[session] = receiver
            if self._watcher is not None:
                self._watcher.watch(receiver.fileno())
        return super().add(session)

    def remove(self, session: str, listener: HintBuffer) -> None:
        super().remove(session, listener)
        if session not in self and (receiver := self._sockets.pop(session, None)) is not None:
            if self._watcher is not None:
                self._watcher.unwatch(receiver.fileno())
            receiver.close()
            (self.folder / self._name(session)).unlink(missing_ok=True)

    def _bind(self, session: str) -> socket.socket | None:
        """None: sockets cannot be used here; the poll interval remains."""
        path = self.folder / self._name(session)
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        receiver.setblocking(False)
        try:
            path.unlink(missing_ok=True)
            self._with_short_path(path, receiver.bind)
            path.chmod(self.folder.stat().st_mode & 0o666)  # whatever the umask
        except OSError:
            receiver.close()
            return None
        return receiver

    def restore(self) -> None:
        """Bind the sockets again whose addresses were removed."""
        for session, lost in list(self._sockets.items()):
            if (self.folder / self._name(session)).exists() or (receiver := self._bind(session)) is None:
                continue
            self._sockets[session] = receiver
            if self._watcher is not None:
                self._watcher.unwatch(lost.fileno())
                self._watcher.watch(receiver.fileno())
            lost.close()

    def sweep(self) -> None:
        """Delete the addresses of listeners that died."""
        for path in self.folder.glob("*.hint"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
                try:
                    self._with_short_path(path, probe.connect)
                except OSError:
                    path.unlink(missing_ok=True)

    def _name(self, session: str) -> str:
        return hashlib.blake2b(f"{self._app}/{session}".encode(), digest_size=10).hexdigest() + ".hint"

    def _with_short_path(self, path: Path, do: Callable[[str], object]) -> None:
        """A socket's path is limited; a long one goes through a descriptor of the folder."""
        if len(os.fsencode(path)) <= _MAX_PATH:
            do(str(path))
            return
        folder = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            do(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)

    def receive(self, fd: int) -> bool:
        """Read what has come to a socket; True: a session has joined."""
        joined = False
        for session, receiver in list(self._sockets.items()):
            if receiver.fileno() != fd:
                continue
            try:
                while True:
                    message = msgspec.json.decode(receiver.recv(65536), type=SessionNotification)
                    joined = joined or message.session_joined
                    if message.has_hint:
                        self.notify_session(session, message)
            except (OSError, msgspec.DecodeError):
                pass  # nothing more, closed meanwhile, or a stranger's datagram
        return joined

    def notify_session(self, session: str, message: SessionNotification) -> None:
        self.notify(
            session,
            message.sources,
            message.cancel_requests,
            message.ended,
            message.new_items,
            recheck=message.recheck,
            events=message.events,
        )

    # -- send

    def publish(self, calls: Sequence[Notifications], workers: Iterable[str], members: Iterable[str]) -> None:
        """Send what several calls have changed, in one notification per session. members: of groups for events."""
        by_session: defaultdict[str, SessionNotification] = defaultdict(SessionNotification)
        for call in calls:
            sources = call.woken | call.alarmed
            recheck = call.recheck or call.wait_over
            if sources or recheck or call.session_joined:
                for worker in workers:
                    if worker != call.caller:
                        by_session[worker].sources |= sources
                        by_session[worker].recheck |= recheck
                        by_session[worker].session_joined |= call.session_joined
            for session, uuid, reason in call.cancel_requests:
                by_session[session].cancel_requests[uuid] = reason
            for session, uuids in call.ended.items():
                by_session[session].ended += uuids
            for session, uuids in call.new_items.items():
                by_session[session].new_items += uuids
            for member in members if call.events else ():
                by_session[member].events |= member != call.caller
        for session, message in by_session.items():
            if session not in self:
                self.send_to(session, message)
            elif message.has_hint:
                self.notify_session(session, message)
        self.send()

    def send_to(self, session: str, message: SessionNotification) -> None:
        """To a session of another process."""
        name = self._name(session)
        if os.access(self.folder / name, os.F_OK):
            self._unsent += [(name, datagram) for datagram in message.datagrams()]

    def send(self) -> bool:
        """True: the queue of some receiver is full; its datagrams are kept for a moment."""
        if not self._unsent:
            return False
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        full: list[tuple[str, bytes]] = []
        unreachable: set[str] = set()
        for name, datagram in self._unsent:
            if name in unreachable:
                continue
            try:
                self._with_short_path(self.folder / name, partial(self._sender.sendto, datagram))
            except BlockingIOError:
                full.append((name, datagram))
            except ConnectionRefusedError:  # the listener has died
                (self.folder / name).unlink(missing_ok=True)
            except OSError:
                unreachable.add(name)
        self._unsent = full[-_MAX_UNSENT:]
        return bool(full)

    def clear(self) -> None:
        """The store is closed: nothing more is sent."""
        self._unsent = []
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def after_fork(self) -> None:
        """In the child: the sockets are the parent's."""
        for receiver in self._sockets.values():
            receiver.close()
        if self._sender is not None:
            self._sender.close()
