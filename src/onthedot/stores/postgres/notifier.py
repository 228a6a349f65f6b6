"""Hints: told by NOTIFY after the commit, heard by LISTEN on a connection of its own."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import msgspec

from onthedot.errors import StoreError
from onthedot.stores.hint_streams import HintHub, HintStream
from onthedot.stores.postgres.connections import Connection, PostgresConnection, connect
from onthedot.stores.postgres.errors import explained
from onthedot.stores.postgres.queries import SQL
from onthedot.stores.postgres.url import PostgresAddress

_log = logging.getLogger("onthedot.store")
_MOST = 7900  # bytes that a NOTIFY carries
_PAUSE = (0.05, 5.0)  # seconds between two tries to hear again: the first, the longest
_ALL = b"{}"  # too much to say: look at everything
_PROOF = "heard by "  # and by whom; nothing to others
_DEAF = "%s: no hints come through, new tasks are found by polling; behind a pooler ?listen=host:port names the server"
_PROVEN = 5.0  # seconds for it to come back


class Notification(msgspec.Struct, omit_defaults=True):
    """What a call has to tell others, once it is committed."""

    sources: list[str] = []
    ended: list[tuple[str, list[str]]] | None = None  # who waits for them, uuids
    cancel: list[tuple[str, str]] | None = None  # who runs it, uuid
    reason: str = ""
    but: str | None = None  # the session that called, and looks by itself
    by: str = ""  # the loop, which has told its own already

    def __bool__(self) -> bool:
        return bool(self.sources or self.ended or self.cancel)

    def parts(self) -> Iterable[bytes]:
        """As many as it takes."""
        text = msgspec.json.encode(self)
        if len(text) <= _MOST:
            yield text
            return
        if self.ended is not None and len(self.ended) == 1:
            who, uuids = self.ended[0]
            self.ended = [(who, half) for half in (uuids[: len(uuids) // 2], uuids[len(uuids) // 2 :]) if half]
        for name in ("sources", "ended", "cancel"):
            some: list[Any] = getattr(self, name) or []
            if len(some) > 1:
                half = len(some) // 2
                yield from msgspec.structs.replace(self, **{name: some[:half]}).parts()
                others: dict[str, Any] = {"sources": [], "ended": None, "cancel": None, name: some[half:]}
                yield from msgspec.structs.replace(self, **others).parts()
                return
        yield _ALL


_told = msgspec.json.Decoder(Notification)


def channel_of(app: str) -> str:
    return f"onthedot:{hashlib.md5(app.encode(), usedforsecurity=False).hexdigest()}"


class Notifier:
    """Of one event loop: who listens there, and the two connections that it takes."""

    def __init__(self, address: PostgresAddress, app: str, connection: PostgresConnection) -> None:
        self._address = address.heard
        self._channel = channel_of(app)
        self._sender = connection
        self._me = uuid4().hex[:12]
        self._listeners = HintHub()
        self._listener: Connection | None = None
        self._lock = asyncio.Lock()
        self._waiting: list[bytes] = []
        self._teller: asyncio.Task[None] | None = None
        self._again: asyncio.Task[None] | None = None
        self._proof: asyncio.Task[None] | None = None
        self._hears = asyncio.Event()
        self._closing = False

    # -- telling

    def notify(self, told: Notification) -> None:
        """Those of this loop at once; others as soon as the line is free: what gathers meanwhile goes together."""
        self.deliver(told)
        told.by = self._me
        self._waiting += told.parts()
        if self._teller is None:
            self._teller = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._waiting:
                hints, self._waiting = self._waiting, []
                hints = list(dict.fromkeys(hints))
                await self._sender.rows(SQL["notify"], self._channel, [hint.decode() for hint in hints])
        except StoreError as error:  # it may be lost: who waits looks by itself now and then
            _log.debug("a hint was lost: %s", error)
            self._waiting.clear()
        finally:
            self._teller = None

    def deliver(self, told: Notification) -> None:
        """To listeners of this loop."""
        if told.sources:
            self._listeners.notify_all(told.sources, caller=told.but)
        for session, uuids in told.ended or ():
            self._listeners.notify(session, ended=uuids)
        for session, uuid in told.cancel or ():
            self._listeners.notify(session, cancel_requests={uuid: told.reason})

    # -- hearing

    def hears(self, session: str) -> HintStream:
        return self._listeners.listen(session, self._connected)

    async def _connected(self) -> None:
        async with self._lock:
            if self._listener is None or self._listener.is_closed():
                await self._listen()

    async def _listen(self) -> None:
        connection = await connect(self._address)
        try:
            await connection.add_listener(self._channel, self._heard)
        except BaseException as error:  # a cancel, too, must leave nothing open
            connection.terminate()
            if isinstance(error, Exception):
                raise explained(error, self._address.where) from error
            raise
        connection.add_termination_listener(self._cut)
        self._listener = connection
        self._proof = asyncio.create_task(self._prove())

    async def _prove(self) -> None:
        """A pooler in transaction mode takes a LISTEN, and that was all: better told than wondered at."""
        self._hears.clear()
        try:
            await self._sender.rows(SQL["notify"], self._channel, [_PROOF + self._me])
            async with asyncio.timeout(_PROVEN):
                await self._hears.wait()
        except TimeoutError:
            _log.warning(_DEAF, self._address.where)
        except StoreError as error:  # the connection broke: there will be another
            _log.debug("not known whether hints come through: %s", error)

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        if payload == _PROOF + self._me:
            self._hears.set()
        try:
            told = _told.decode(str(payload))
        except msgspec.DecodeError:
            return
        if told.by == self._me:
            return
        if told:
            self.deliver(told)
        else:
            self._listeners.resync()

    def doubt(self) -> None:
        """Whether this connection still hears: it is made anew."""
        if self._listener is not None and not self._listener.is_closed():
            self._listener.terminate()

    def _cut(self, connection: object) -> None:
        """The line broke: hear again as soon as there is a server; what was said meanwhile is lost, so resync."""
        if connection is self._listener and self._again is None and not self._closing:
            self._listener = None
            if self._proof is not None:
                self._proof.cancel()  # it would take the cut for deafness
            self._again = asyncio.get_running_loop().create_task(self._hear_again())

    async def _hear_again(self) -> None:
        pause = _PAUSE[0]
        try:
            while True:
                try:
                    async with self._lock:
                        await self._listen()
                    break
                except StoreError as error:
                    _log.debug("not hearing yet: %s", error)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _PAUSE[1])
            self._listeners.resync()
        finally:
            self._again = None

    async def close(self) -> None:
        """What is still to be told is told, if that does not take long."""
        self._closing = True
        if self._teller is not None:
            await asyncio.wait([self._teller], timeout=1)
        for task in (self._teller, self._again, self._proof):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        connection, self._listener = self._listener, None  # one that was just made again, too
        if connection is not None and not connection.is_closed():
            with suppress(Exception):
                await connection.close(timeout=2)


def told_of(text: str | None, but: str | None = None, reason: str = "") -> Notification:
    told = _told.decode(text) if text else Notification()
    told.but, told.reason = but, reason
    return told


def sources_told(sources: Iterable[str]) -> Notification:
    return Notification(sources=sorted(set(sources)))
