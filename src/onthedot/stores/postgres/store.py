"""The Postgres store: every verb is one function in the database, and one round trip."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from onthedot.clock.protocol import Clock
from onthedot.clock.system import SystemClock
from onthedot.errors import StoreUnavailable
from onthedot.forks import keep_over_fork, register_fork_hooks
from onthedot.stores.contract import (
    Added,
    ClaimRequest,
    FireRequest,
    HeartbeatResult,
    Hints,
    Lease,
    LeasedTasks,
    Limit,
    NewTask,
    Note,
    Outcome,
    Record,
    Schedule,
    StoreTraits,
    TurnResult,
    Verdict,
)
from onthedot.stores.postgres import protocol
from onthedot.stores.postgres.connections import PostgresConnection, PostgresConnections
from onthedot.stores.postgres.notifier import Notification, Notifier, sources_told, told_of
from onthedot.stores.postgres.queries import SQL
from onthedot.stores.postgres.reads import PostgresReads
from onthedot.stores.postgres.schema import prepare
from onthedot.stores.postgres.transactions import join, join_awaited
from onthedot.stores.postgres.url import PostgresAddress


class _Here(PostgresConnections):
    """What one event loop has of the store."""

    def __init__(self, address: PostgresAddress, app: str) -> None:
        super().__init__(address)
        self.hearing: Notifier = Notifier(address, app, self.beat)
        self.app_id: int | None = None
        for connection in self.all:
            connection.on_timeout = self._doubt

    def _doubt(self) -> None:
        """A connection went silent: the others may be, too. Each would cost a call, and that of hints not be missed."""
        self.hearing.doubt()
        for connection in self.all:
            connection.drop_idle()

    async def close(self) -> None:
        await self.hearing.close()
        await super().close()


class PostgresStore(PostgresReads):
    """Several apps may share a database: each sees its own tasks. May be used on several loops, opened on each."""

    def __init__(self, url: str, clock: Clock | None = None, name: str = "onthedot") -> None:
        self.address: PostgresAddress = PostgresAddress.of(url)
        self.traits: StoreTraits = StoreTraits(shared=True, lease_ms=self.address.lease)
        self._clock = clock or SystemClock()
        self._name = name
        self._lock = threading.Lock()
        self._here: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Here] = weakref.WeakKeyDictionary()
        self._asked: dict[str, int] = {}  # by session: its last ask, since one that took nothing is not written down
        self._prepared = False
        register_fork_hooks(self, store=True)

    # -- open and shut: once for every loop that uses it

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            here = self._here.get(loop)
            if here is None:
                here = self._here[loop] = _Here(self.address, self._name)
            here.users += 1
        try:
            if not self._prepared:
                await here.look.with_connection(lambda connection: prepare(connection, self.address))
                self._prepared = True
            if here.app_id is None:
                row = await here.look.row(SQL["app"], self._name) or await here.add.row(SQL["new_app"], self._name)
                here.app_id = row[-1]
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            here = self._here.get(loop)
            if here is None:
                return
            here.users -= 1
            if here.users:
                return
            del self._here[loop]
        await here.close()

    def _now(self) -> float | None:
        """None: by the server's clock. Only a clock that somebody turns is asked."""
        return None if self._clock.is_system else self._clock.now() + self._clock.wall_clock_jump()

    @property
    def _mine(self) -> _Here:
        here = self._here.get(asyncio.get_running_loop())
        if here is None:
            raise StoreUnavailable(f"{self.address.where} is not open")
        return here

    @property
    def _connection(self) -> PostgresConnection:
        return self._mine.look

    @property
    def _app(self) -> int:
        app = self._mine.app_id
        if app is None:
            raise StoreUnavailable(f"{self.address.where} is not open")
        return app

    def _said(self, **said: Any) -> str:
        return protocol.encode({"app": self._name, "now": self._now(), **said})

    def _tell(self, told: Notification) -> None:
        if told:
            self._mine.hearing.notify(told)

    # -- tasks

    async def add(self, tasks: Sequence[NewTask]) -> Sequence[Added]:
        if not tasks:
            return []
        row = await self._mine.add.row(SQL["add"], self._said(tasks=protocol.encode_tasks(tasks)))
        self._tell(sources_told(row["sources"]))
        return _added(row)

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        asked = (
            None if request is None else protocol.encode_ask(request, again=self._asked.get(session) == request.number)
        )
        ends = protocol.encode(protocol.encode_outcomes(outcomes))
        whose = sorted({outcome.lease.session for outcome in outcomes})
        row = await self._mine.turn.row(SQL["turn"], self._said(session=session, claim=asked, sessions=whose), ends)
        self._tell(told_of(row["notification"], but=session))
        if request is None or not row["alive"]:
            return TurnResult(row["verdicts"] or [], alive=row["alive"])
        self._asked[session] = request.number
        return TurnResult(row["verdicts"] or [], protocol.claimed(row))

    async def note(self, notes: Sequence[Note]) -> Sequence[Lease]:
        row = await self._mine.add.row(SQL["note"], self._said(notes=[protocol.encode_note(note) for note in notes]))
        lost: Sequence[int] = row["lost"]
        return [notes[place - 1].lease for place in lost]

    async def cancel(self, session: str, uuids: Sequence[str], reason: str = "") -> LeasedTasks:
        row = await self._mine.add.row(SQL["cancel"], self._said(session=session, uuids=uuids))
        self._tell(told_of(row["notification"], session, reason))
        return LeasedTasks(row["fence"], protocol.records(row))

    async def lift(self, session: str, uuids: Sequence[str]) -> LeasedTasks:
        row = await self._mine.add.row(SQL["lift"], self._said(session=session, uuids=uuids))
        self._tell(told_of(row["notification"], session))
        return LeasedTasks(row["fence"], protocol.records(row))

    async def adopt(self, records: Sequence[Record]) -> Sequence[Added]:
        said = self._said(records=[protocol.encode_record(record) for record in records])
        return _added(await self._mine.add.row(SQL["adopt"], said))

    async def revive(self, uuids: Sequence[str]) -> Sequence[str]:
        row = await self._mine.add.row(SQL["revive"], self._said(uuids=uuids))
        self._tell(told_of(row["notification"]))
        live: Sequence[str] = row["live"]
        return live

    # -- sessions

    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        row = await self._mine.beat.row(SQL["heartbeat"], self._said(session=session, info=info, lease=lease))
        self._tell(told_of(row["notification"], but=session))
        if not row["alive"]:
            return HeartbeatResult(alive=False)
        return HeartbeatResult(True, protocol.leases(row["cancel"], session))

    async def close_session(self, session: str, *, crashed: bool = False) -> None:
        connection = self._mine.beat if crashed else self._mine.add
        row = await connection.row(SQL["close_session"], self._said(session=session, crashed=crashed))
        self._asked.pop(session, None)
        self._tell(told_of(row["notification"], but=session))

    def hints(self, session: str) -> Hints:
        return self._mine.hearing.hears(session)

    # -- control

    async def put_schedules(self, schedules: Sequence[Schedule]) -> Sequence[bool]:
        row = await self._mine.add.row(SQL["put_schedules"], self._said(schedules=schedules))
        self._tell(told_of(row["notification"]))
        answers: Sequence[bool] = row["answers"]
        return answers

    async def put_limits(self, limits: Sequence[Limit]) -> None:
        row = await self._mine.add.row(SQL["put_limits"], self._said(limits=limits))
        self._tell(told_of(row["notification"]))

    async def fire(self, fires: Sequence[FireRequest]) -> Sequence[bool]:
        row = await self._mine.add.row(SQL["fire"], self._said(fires=[protocol.encode_fire(fire) for fire in fires]))
        self._tell(told_of(row["notification"]))
        answers: Sequence[bool] = row["answers"]
        return answers

    async def delete_schedules(self, schedules: Sequence[str]) -> None:
        await self._mine.add.row(SQL["delete_schedules"], self._said(names=schedules))

    async def purge(self, limit: int, most: int = 1_000_000) -> int:
        row = await self._mine.add.row(SQL["purge"], self._said(limit=limit, most=most))
        deleted: int = row["deleted"]
        return deleted

    # -- inside the caller's transaction

    def add_in(self, connection: object, tasks: Sequence[NewTask]) -> Sequence[Added]:
        """Adds with the caller's commit, or not at all."""
        return _added(join(connection, "add_v1", self._said(tasks=protocol.encode_tasks(tasks), in_transaction=True)))

    def settle_in(self, connection: object, outcome: Outcome) -> Verdict:
        """Settles with the caller's commit. If the answer is not "ok", the caller should roll back."""
        verdict: Verdict = join(connection, "settle_in_v1", self._said(outcomes=[protocol.encode_outcome(outcome)]))[0]
        return verdict

    async def add_awaited(self, connection: object, tasks: Sequence[NewTask]) -> Sequence[Added]:
        said = self._said(tasks=protocol.encode_tasks(tasks), in_transaction=True)
        return _added(await join_awaited(connection, "add_v1", said))

    async def settle_awaited(self, connection: object, outcome: Outcome) -> Verdict:
        said = self._said(outcomes=[protocol.encode_outcome(outcome)])
        verdict: Verdict = (await join_awaited(connection, "settle_in_v1", said))[0]
        return verdict

    # -- around a fork

    def after_fork(self) -> None:
        """The connections stay the parent's."""
        self._lock = threading.Lock()
        keep_over_fork(list(self._here.values()))
        self._here = weakref.WeakKeyDictionary()


def _added(row: Any) -> list[Added]:
    return [Added(uuid, fresh) for uuid, fresh in zip(row[0], row[1], strict=True)]
