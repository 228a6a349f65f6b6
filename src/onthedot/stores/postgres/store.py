"""The Postgres store: every verb is one function in the database, and one round trip."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

from onthedot.clock.protocol import Clock
from onthedot.clock.system import SystemClock
from onthedot.errors import StoreUnavailable
from onthedot.forks import keep_over_fork, register_fork_hooks
from onthedot.stores.contract import (
    SERIES,
    Added,
    ClaimRequest,
    FireRequest,
    HeartbeatResult,
    Hints,
    Lease,
    LeasedTasks,
    Limit,
    NewSignal,
    NewTask,
    Note,
    Outcome,
    Record,
    Schedule,
    SeriesEntry,
    StoreTraits,
    TurnResult,
    Verdict,
)
from onthedot.stores.postgres import events, protocol, transactions
from onthedot.stores.postgres.connections import PostgresConnection, PostgresConnections
from onthedot.stores.postgres.notifier import Notification, Notifier, decode_notification
from onthedot.stores.postgres.outbox import PostgresOutbox
from onthedot.stores.postgres.queries import SQL
from onthedot.stores.postgres.reads import PostgresReads
from onthedot.stores.postgres.schema import prepare
from onthedot.stores.postgres.url import PostgresAddress
from onthedot.stores.rules import series as series_rules


class PostgresLoop:
    """The store on one event loop: its connections, and the notifier."""

    def __init__(
        self, address: PostgresAddress, app: str, connections: PostgresConnections, members: Collection[str]
    ) -> None:
        self.users: int = 0  # calls of `open` that were not closed
        self.has_app: bool = False  # the app has been found in the database, or was created
        self.connections: PostgresConnections = connections
        self.notifier: Notifier = Notifier(address, app, connections.heartbeat, members)
        connections.on_timeout(self._replace_connections)

    def _replace_connections(self) -> None:
        """One connection is dead, so the others may be. Each would cost a timeout, and hints would be missed."""
        self.notifier.reconnect()
        self.connections.drop_idle()

    async def close(self) -> None:
        await self.notifier.close()
        await self.connections.close()


class PostgresStore(PostgresReads, PostgresOutbox):
    """Several apps may share a database: each sees its own tasks. Several event loops may use it, opened on each.

    connections: makes the connections of one event loop.
    """

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        name: str = "onthedot",
        connections: Callable[[PostgresAddress], PostgresConnections] = PostgresConnections,
    ) -> None:
        self.address: PostgresAddress = PostgresAddress.of(url)
        self.traits: StoreTraits = StoreTraits(
            shared=True, lease_ms=self.address.lease, joined_hints=self.address.notify
        )
        self._clock = clock or SystemClock()
        self._name = name
        self._new_connections = connections
        self._lock = threading.Lock()
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, PostgresLoop]
        self._by_loop = weakref.WeakKeyDictionary()
        self._clock_lag = 0.0  # ms from this process's clock to the server's, at least
        self._prepared = False
        self._members: set[str] = set()  # sessions of this process that relay or read events
        register_fork_hooks(self, store=True)

    # -- open and close, once for every event loop

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            here = self._by_loop.get(loop)
            if here is None:
                connections = self._new_connections(self.address)
                here = PostgresLoop(self.address, self._name, connections, self._members)
                self._by_loop[loop] = here
            here.users += 1
        try:
            if not self._prepared:
                await here.connections.reads.with_connection(lambda connection: prepare(connection, self.address))
                self._prepared = True
            if not here.has_app:
                row = await here.connections.reads.row(SQL["app"], self._name)
                if row is None:
                    row = await here.connections.add.row(SQL["new_app"], self._name)
                here.has_app = True
                self._observe_clock(row["moment"])
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            here = self._by_loop.get(loop)
            if here is None:
                return
            here.users -= 1
            if here.users:
                return
            del self._by_loop[loop]
        await here.close()

    def after_fork(self) -> None:
        """The connections belong to the parent."""
        self._lock = threading.Lock()
        keep_over_fork(list(self._by_loop.values()))
        self._by_loop = weakref.WeakKeyDictionary()
        self._members = set()

    # -- this event loop

    @property
    def _here(self) -> PostgresLoop:
        here = self._by_loop.get(asyncio.get_running_loop())
        if here is None:
            raise StoreUnavailable(f"{self.address.where} is not open")
        return here

    @property
    def connections(self) -> PostgresConnections:
        """The connections of the running event loop."""
        return self._here.connections

    @property
    def notifier(self) -> Notifier:
        """The notifier of the running event loop."""
        return self._here.notifier

    @property
    def _reads(self) -> PostgresConnection:
        return self._here.connections.reads

    def _now(self) -> float | None:
        """None: the server's clock. A clock that is driven, as in tests, is passed with every call."""
        if self._clock.is_system:
            return None
        return self._clock.now() + self._clock.wall_clock_jump()

    def _observe_clock(self, moment: float) -> None:
        """The server's time was `moment` before this reply arrived, so it is not before the sum in `earliest_now`."""
        self._clock_lag = moment - self._clock.now()

    def _request(self, **fields: Any) -> str:
        return protocol.encode({"app": self._name, "now": self._now(), **fields})

    def _notify(self, notification: Notification) -> None:
        if notification:
            self._here.notifier.notify(notification)

    def _set_member(self, session: str, *, alive: bool) -> None:
        if alive:
            self._members.add(session)
        else:
            self._members.discard(session)

    # -- tasks

    def earliest_now(self) -> float:
        now = self._now()
        return self._clock.now() + self._clock_lag if now is None else now

    async def add(self, tasks: Sequence[NewTask], deadline: float | None = None) -> Sequence[Added]:
        if not tasks:
            return []
        encoded = protocol.encode_tasks(tasks)
        in_parts = protocol.must_be_in_parts(encoded)
        request = self._request(number=len(tasks), in_parts=in_parts, deadline=deadline)
        row = await self.connections.add.row(SQL["add"], request, protocol.encode(encoded))
        self._observe_clock(row["moment"])
        self._notify(Notification(sorted(set(row["sources"]))))
        return protocol.to_added(row, tasks)

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        claim: dict[str, Any] | None = None
        if request is not None:
            claim = protocol.encode_claim_request(request)
        spawned = protocol.encode_spawned(outcomes)
        published = events.encode_published(outcomes)
        sessions = sorted({outcome.lease.session for outcome in outcomes})
        body = self._request(
            session=session,
            claim=claim,
            number=len(outcomes),
            sessions=sessions,
            order=protocol.settle_order(outcomes, spawned),
            in_parts=protocol.must_be_in_parts(spawned),
        )
        row = await self.connections.turn.row(
            SQL["turn"],
            body,
            protocol.encode(protocol.encode_outcomes(outcomes, sessions[0])) if outcomes else None,
            protocol.encode(spawned) if spawned else None,
            protocol.encode(published) if published else None,
        )
        self._notify(decode_notification(row["notification"], session))
        self._observe_clock(row["moment"])
        if request is None or not row["alive"]:
            return TurnResult(row["verdicts"] or [], alive=row["alive"])
        return TurnResult(row["verdicts"] or [], protocol.to_claim_result(row))

    async def note(self, notes: Sequence[Note]) -> Sequence[Lease]:
        row = await self.connections.add.row(SQL["note"], self._note_request(notes))
        self._notify(decode_notification(row["notification"]))
        lost: Sequence[int] = row["lost"]
        return [notes[position - 1].lease for position in lost]

    async def cancel(self, session: str, uuids: Sequence[str], reason: str = "") -> LeasedTasks:
        row = await self.connections.add.row(SQL["cancel"], self._request(session=session, uuids=uuids))
        self._notify(decode_notification(row["notification"], session, reason))
        return LeasedTasks(row["fence"], protocol.to_records(row))

    async def lift(self, session: str, uuids: Sequence[str]) -> LeasedTasks:
        row = await self.connections.add.row(SQL["lift"], self._request(session=session, uuids=uuids))
        self._notify(decode_notification(row["notification"], session))
        return LeasedTasks(row["fence"], protocol.to_records(row))

    async def adopt(self, records: Sequence[Record]) -> Sequence[Added]:
        request = self._request(records=[protocol.encode_record(record) for record in records])
        return protocol.to_added(await self.connections.add.row(SQL["adopt"], request), records)

    async def revive(self, uuids: Sequence[str]) -> Sequence[str]:
        row = await self.connections.add.row(SQL["revive"], self._request(uuids=uuids))
        self._notify(decode_notification(row["notification"]))
        live: Sequence[str] = row["live"]
        return live

    async def signal(self, signals: Sequence[NewSignal]) -> Sequence[bool]:
        request = self._request(signals=[protocol.encode_signal(signal) for signal in signals])
        row = await self.connections.add.row(SQL["signal"], request)
        self._notify(decode_notification(row["notification"]))
        answers: Sequence[bool] = row["answers"]
        return answers

    # -- sessions

    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        request = self._request(session=session, info=info, lease=lease)
        row = await self.connections.heartbeat.row(SQL["heartbeat"], request)
        if not row["alive"]:
            return HeartbeatResult(alive=False)
        return HeartbeatResult(True, protocol.to_leases(row["cancel_requests"], session))

    async def close_session(self, session: str, *, crashed: bool = False) -> None:
        self._set_member(session, alive=False)
        connection = self.connections.heartbeat if crashed else self.connections.add
        row = await connection.row(SQL["close_session"], self._request(session=session, crashed=crashed))
        self._notify(decode_notification(row["notification"], session))

    async def subscribe(self, session: str, uuids: Sequence[str]) -> None:
        await self.connections.add.row(SQL["subscribe"], self._request(session=session, uuids=uuids))

    def hints(self, session: str) -> Hints:
        return self._here.notifier.listen(session)

    # -- control

    async def put_schedules(self, schedules: Sequence[Schedule]) -> Sequence[bool]:
        row = await self.connections.add.row(SQL["put_schedules"], self._request(schedules=schedules))
        self._notify(decode_notification(row["notification"]))
        answers: Sequence[bool] = row["answers"]
        return answers

    async def put_limits(self, limits: Sequence[Limit], replaces: Sequence[Limit] = ()) -> bool:
        request = self._request(limits=limits)
        row = await self.connections.add.row(SQL["put_limits"], request, protocol.encode(replaces))
        self._notify(decode_notification(row["notification"]))
        stored: bool = row["stored"]
        return stored

    async def fire(self, fires: Sequence[FireRequest]) -> Sequence[bool]:
        request = self._request(fires=[protocol.encode_fire(fire) for fire in fires])
        row = await self.connections.add.row(SQL["fire"], request)
        self._notify(decode_notification(row["notification"]))
        answers: Sequence[bool] = row["answers"]
        return answers

    async def delete_schedules(self, schedules: Sequence[str]) -> None:
        await self.connections.add.row(SQL["delete_schedules"], self._request(names=schedules))

    async def write_series(self, entries: Sequence[SeriesEntry], replaces: Sequence[SeriesEntry] = ()) -> bool:
        series_rules.check(entries, replaces)
        request = self._request(entries=entries, replaces=replaces)
        written: bool = (await self.connections.add.row(SQL["write_series"], request))["written"]
        return written

    async def purge(self, limit: int, most: int = 1_000_000) -> int:
        rules = [{"name": name, "keep": each.keep, "most": each.most} for name, each in SERIES.items()]
        row = await self.connections.add.row(SQL["purge"], self._request(limit=limit, most=most, series=rules))
        deleted: int = row["deleted"]
        return deleted

    # -- in the caller's transaction

    def add_in(self, connection: object, tasks: Sequence[NewTask]) -> Sequence[Added]:
        return protocol.to_added(transactions.call(connection, "add_in_v1", self._add_request(tasks)), tasks)

    def settle_in(self, connection: object, outcome: Outcome) -> Verdict:
        verdict: Verdict = transactions.call(connection, "settle_in_v1", self._settle_request(outcome))["verdict"]
        return verdict

    async def add_awaited(self, connection: object, tasks: Sequence[NewTask]) -> Sequence[Added]:
        row = await transactions.call_awaited(connection, "add_in_v1", self._add_request(tasks))
        return protocol.to_added(row, tasks)

    async def settle_awaited(self, connection: object, outcome: Outcome) -> Verdict:
        row = await transactions.call_awaited(connection, "settle_in_v1", self._settle_request(outcome))
        verdict: Verdict = row["verdict"]
        return verdict

    def note_in(self, connection: object, note: Note) -> Verdict:
        return "lost" if transactions.call(connection, "note_v1", self._note_request([note]))["lost"] else "ok"

    async def note_awaited(self, connection: object, note: Note) -> Verdict:
        row = await transactions.call_awaited(connection, "note_v1", self._note_request([note]))
        return "lost" if row["lost"] else "ok"

    def _note_request(self, notes: Sequence[Note]) -> str:
        return self._request(notes=[protocol.encode_note(note) for note in notes])

    def _add_request(self, tasks: Sequence[NewTask]) -> str:
        encoded = protocol.encode_tasks(tasks)
        return self._request(tasks=encoded, in_parts=protocol.must_be_in_parts(encoded))

    def _settle_request(self, outcome: Outcome) -> str:
        spawned = protocol.encode_spawned([outcome])
        in_parts = protocol.must_be_in_parts(spawned)
        session = outcome.lease.session
        outcomes = protocol.encode_outcomes([outcome], session)
        published = events.encode_published([outcome])
        return self._request(session=session, outcomes=outcomes, tasks=spawned, in_parts=in_parts, events=published)
