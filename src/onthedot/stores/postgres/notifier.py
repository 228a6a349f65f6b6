"""Hints: sent by NOTIFY after the commit, received by LISTEN on a connection of its own."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from onthedot.errors import StoreError
from onthedot.stores.hint_streams import HintHub, HintStream
from onthedot.stores.postgres.connections import Connection, PostgresConnection, connect
from onthedot.stores.postgres.errors import translate
from onthedot.stores.postgres.queries import SQL
from onthedot.stores.postgres.url import PostgresAddress

_log = logging.getLogger("onthedot.store")
_MAX_PAYLOAD = 7900  # bytes; NOTIFY takes at most 8000
_FIRST_PAUSE = 0.05  # seconds between two attempts to connect again
_LONGEST_PAUSE = 5.0
_EVERYTHING = b"{}"  # a notification that is too long to be sent: listeners resync
_CHECK_PREFIX = "check of "
_NO_HINTS = (
    "%s: no hints come through, new tasks are found by polling; behind a pooler ?listen=host:port names the server"
)
CHECK_TIMEOUT = 5.0  # seconds for a notification to come back to its sender


class ReportedTasks(NamedTuple):
    """Tasks that have ended or have new items, and the session that they are reported to."""

    session: str
    uuids: list[str]


class CancelTarget(NamedTuple):
    """A running task whose cancel was requested, and the session that runs it."""

    session: str
    uuid: str


class Notification(msgspec.Struct, omit_defaults=True):
    """Changes for other sessions, sent when the call is committed."""

    sources: list[str] = []
    recheck: bool = False
    ended: list[ReportedTasks] = []
    new_items: list[ReportedTasks] = []
    cancel_requests: list[CancelTarget] = []
    events: bool = False  # there are events to relay or to read, or buckets to own
    reason: str = ""  # of the cancel requests
    caller: str | None = None  # the session that called: it sees the effects itself
    sender: str = ""  # the notifier that sends it, which has delivered it on its own event loop

    def __bool__(self) -> bool:
        return bool(self.sources or self.recheck or self.ended or self.new_items or self.cancel_requests or self.events)

    def payloads(self) -> Iterable[bytes]:
        """As few as possible, each short enough for NOTIFY."""
        payload = msgspec.json.encode(self)
        if len(payload) <= _MAX_PAYLOAD:
            yield payload
            return
        halves = self._halves()
        if not halves:
            yield _EVERYTHING
        for half in halves:
            yield from half.payloads()

    def _halves(self) -> tuple[Notification, ...]:
        """Empty: it cannot be divided."""
        self.ended = _in_halves(self.ended)
        self.new_items = _in_halves(self.new_items)
        other = replace(self, sources=[], recheck=False, ended=[], new_items=[], cancel_requests=[], events=False)
        if middle := len(self.sources) // 2:
            return replace(self, sources=self.sources[:middle]), replace(other, sources=self.sources[middle:])
        if middle := len(self.ended) // 2:
            return replace(self, ended=self.ended[:middle]), replace(other, ended=self.ended[middle:])
        if middle := len(self.new_items) // 2:
            return replace(self, new_items=self.new_items[:middle]), replace(other, new_items=self.new_items[middle:])
        if middle := len(self.cancel_requests) // 2:
            return (
                replace(self, cancel_requests=self.cancel_requests[:middle]),
                replace(other, cancel_requests=self.cancel_requests[middle:]),
            )
        return ()


def _in_halves(tasks: list[ReportedTasks]) -> list[ReportedTasks]:
    """The tasks of one session as two entries, so that they can be divided."""
    if len(tasks) != 1:
        return tasks
    session, uuids = tasks[0]
    middle = len(uuids) // 2
    return [ReportedTasks(session, half) for half in (uuids[:middle], uuids[middle:]) if half]


_decode = msgspec.json.Decoder(Notification).decode


def decode_notification(text: str | None, caller: str | None = None, reason: str = "") -> Notification:
    """From the answer of a verb. reason: of a cancel; the database does not need it."""
    notification = _decode(text) if text else Notification()
    notification.caller = caller
    notification.reason = reason
    return notification


def channel_of(app: str) -> str:
    return f"onthedot:{hashlib.md5(app.encode(), usedforsecurity=False).hexdigest()}"


class Notifier:
    """The listeners of one event loop, and the two connections that they need."""

    def __init__(
        self, address: PostgresAddress, app: str, sender: PostgresConnection, members: Collection[str] = ()
    ) -> None:
        """members: sessions that relay or read events; the set changes."""
        self._address = address.listen_address
        self._channel = channel_of(app)
        self._sender = sender
        self._members = members
        self._id = uuid4().hex[:12]
        self._hub = HintHub()
        self._listener: Connection | None = None
        self._lock = asyncio.Lock()
        self._unsent: list[bytes] = []
        self._sending: asyncio.Task[None] | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()
        self._closing = False

    # -- sending

    def notify(self, notification: Notification) -> None:
        """Deliver on this event loop at once, and send to others; what gathers during a send goes with the next."""
        self._deliver(notification)
        notification.sender = self._id
        self._unsent += notification.payloads()
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._unsent:
                payloads = dict.fromkeys(self._unsent)
                self._unsent = []
                await self._sender.rows(SQL["notify"], self._channel, [payload.decode() for payload in payloads])
        except StoreError as error:  # workers and clients poll as well
            _log.debug("a hint was lost: %s", error)
            self._unsent.clear()
        finally:
            self._sending = None

    def _deliver(self, notification: Notification) -> None:
        if notification.sources or notification.recheck:
            self._hub.notify_all(notification.sources, recheck=notification.recheck, caller=notification.caller)
        for session, uuids in notification.ended:
            self._hub.notify(session, ended=uuids)
        for session, uuids in notification.new_items:
            self._hub.notify(session, new_items=uuids)
        for session, uuid in notification.cancel_requests:
            self._hub.notify(session, cancel_requests={uuid: notification.reason})
        if notification.events:
            for session in list(self._members):
                if session != notification.caller:
                    self._hub.notify(session, events=True)

    # -- receiving

    def listen(self, session: str) -> HintStream:
        return self._hub.listen(session, self._ensure_connected)

    async def _ensure_connected(self) -> None:
        async with self._lock:
            if self._listener is None or self._listener.is_closed():
                await self._connect()

    async def _connect(self) -> None:
        connection = await connect(self._address)
        try:
            await connection.add_listener(self._channel, self._on_notification)
        except BaseException as error:  # a cancelled call, too, must leave no connection open
            connection.terminate()
            if isinstance(error, Exception):
                raise translate(error, self._address.where) from error
            raise
        connection.add_termination_listener(self._on_termination)
        self._listener = connection
        self._checking = asyncio.create_task(self._check())

    async def _check(self) -> None:
        """Send a notification to itself: a pooler in transaction mode accepts LISTEN, but passes nothing on."""
        self._arrived.clear()
        try:
            await self._sender.rows(SQL["notify"], self._channel, [_CHECK_PREFIX + self._id])
            async with asyncio.timeout(CHECK_TIMEOUT):
                await self._arrived.wait()
        except TimeoutError:
            _log.warning(_NO_HINTS, self._address.where)
        except StoreError as error:  # the connection broke: the next one is checked again
            _log.debug("not known whether hints come through: %s", error)

    async def checked(self) -> None:
        """Wait until it is known whether hints come through."""
        if self._checking is not None:
            await asyncio.wait([self._checking])

    def _on_notification(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        if payload == _CHECK_PREFIX + self._id:
            self._arrived.set()
        try:
            notification = _decode(str(payload))
        except msgspec.DecodeError:
            return
        if notification.sender == self._id:
            return
        if notification:
            self._deliver(notification)
        else:
            self._hub.resync()

    def reconnect(self) -> None:
        """Replace a connection that may be dead."""
        if self._listener is not None and not self._listener.is_closed():
            self._listener.terminate()

    def _on_termination(self, connection: object) -> None:
        if connection is not self._listener or self._closing:
            return
        self._listener = None
        if self._checking is not None:
            self._checking.cancel()  # its notification will not arrive
        if self._reconnecting is None:
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        """Connect as soon as there is a server, unless a new listener has. Hints were lost meanwhile: resync."""
        pause = _FIRST_PAUSE
        try:
            while True:
                try:
                    await self._ensure_connected()
                    break
                except StoreError as error:
                    _log.debug("no hints yet: %s", error)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _LONGEST_PAUSE)
            self._hub.resync()
        finally:
            self._reconnecting = None

    async def close(self) -> None:
        """Wait up to a second for unsent notifications, then close the connection."""
        self._closing = True
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=1)
        for task in (self._sending, self._reconnecting, self._checking):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        connection = self._listener  # also one that was connected meanwhile
        self._listener = None
        if connection is not None and not connection.is_closed():
            with suppress(Exception):
                await connection.close(timeout=2)
