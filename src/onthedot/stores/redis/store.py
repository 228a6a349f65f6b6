"""The Redis store: every verb is one script and one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import Any, TypeVar, cast

from onthedot.clock.protocol import Clock
from onthedot.errors import StoreFull
from onthedot.forks import keep_over_fork, register_fork_hooks
from onthedot.stores.contract import (
    CLIENT_LEASE,
    MAX_KEPT_SIGNALS,
    MAX_SUBSCRIPTIONS,
    Added,
    ClaimRequest,
    ClaimResult,
    DeadlinePassed,
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
    SlotPool,
    StoreIdentity,
    StoreTraits,
    TurnResult,
    Verdict,
)
from onthedot.stores.redis.client import PATIENCE, RedisClient, closed
from onthedot.stores.redis.hints import RedisHintStream
from onthedot.stores.redis.outcome_format import pack_outcomes
from onthedot.stores.redis.policy_format import UnknownPolicy, forget_missing, remember_policy
from onthedot.stores.redis.position import pack_limit
from onthedot.stores.redis.reads import RedisReads
from onthedot.stores.redis.record_format import (
    decode,
    encode,
    group_tasks,
    or_none,
    pack_copies,
    pack_tasks,
    to_records,
)
from onthedot.stores.redis.schedule_format import pack_schedule, to_schedules
from onthedot.stores.redis.series_format import pack_entries, pack_retention
from onthedot.stores.redis.subscription import RedisSubscription
from onthedot.stores.redis.url import RedisAddress, parse_url
from onthedot.stores.redis.uuid_format import pack_each_uuid, pack_uuid, to_uuid
from onthedot.stores.rules import series as series_rules

T = TypeVar("T")

_VERDICTS: dict[int, Verdict] = {ord("o"): "ok", ord("r"): "repeat", ord("l"): "lost"}
_OFFER = Struct(">dQ")
_PURGE = 1000  # tasks per script


def prefix_of(name: str) -> str:
    """All keys of an app begin with it."""
    return f"onthedot:{{{name}}}:"


class RedisStore(RedisReads):
    """Several apps may share a server: the keys of each begin with ``onthedot:{name}:``."""

    max_handoff_sources = 100

    def __init__(self, url: str, clock: Clock | None = None, name: str = "onthedot") -> None:
        self._address: RedisAddress = parse_url(url)
        self.traits: StoreTraits = StoreTraits(shared=True, cancel_safe=True, lease_ms=self._address.lease)
        self.prefix: str = prefix_of(name)
        self._clock = None if clock is None or clock.is_system else clock  # None: the server's
        self._clients: dict[asyncio.AbstractEventLoop, tuple[RedisClient, int]] = {}
        register_fork_hooks(self, store=True)

    # -- open and close: once per event loop

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        client, users = self._clients.get(loop) or (RedisClient(self._address), 0)
        self._clients[loop] = (client, users + 1)
        if users:
            return
        try:
            await client.check(self.prefix)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        client, users = self._clients.pop(loop)
        if users > 1:
            self._clients[loop] = (client, users - 1)
        else:
            await client.close()

    @property
    def has_pending(self) -> bool:
        """Whether answers of the server are to come on this event loop; tests wait for them."""
        return self._client.has_pending

    @property
    def _client(self) -> RedisClient:
        found = self._clients.get(asyncio.get_running_loop())
        if found is None:
            raise closed(self._address)
        client, _ = found
        return client

    async def _call(self, verb: str, *args: Any) -> Any:
        now = "" if self._clock is None else repr(self._clock.now())
        return await self._client.call(verb, self.prefix, now, *args)

    async def _command(self, command: str, key: str, *args: Any) -> Any:
        return await self._client.command(command, self.prefix + key, *args)

    async def _with_policies(self, read: Callable[[], T]) -> T:
        """Policies of other processes are read when a record needs them."""
        missing: list[str] = []
        while True:
            try:
                found = read()
            except UnknownPolicy as unknown:
                text = await self._command("HGET", "policies", unknown.digest)
                remember_policy(unknown.digest, text)
                if text is None:
                    missing.append(unknown.digest)
            else:
                forget_missing(missing)
                return found

    # -- tasks

    def earliest_now(self) -> float:
        return self._client.clock.earliest_now() if self._clock is None else self._clock.now()

    async def add(self, tasks: Sequence[NewTask], deadline: float | None = None) -> Sequence[Added]:
        if not tasks:
            return []
        policies: dict[str, str] = {}
        groups = encode(group_tasks(tasks, policies))
        until = b""
        if deadline is not None:  # the client gives up after PATIENCE, with an error that must stay true
            until = b"%.3f" % min(deadline, self.earliest_now() + PATIENCE * 1000)
        answer = await self._call("add", until, encode(policies), groups, *pack_tasks(tasks))
        if isinstance(answer, bytes):
            now = float(answer)
            self._client.clock.set(now)
            raise DeadlinePassed(now)
        return _added(tasks, answer)

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        claim = offer = b""
        if request is not None:
            pools = [_pack_pool(pool) for pool in request.pools]
            claim = encode((request.number, pools, request.max_suspects))
            offer = _pack_offer(request)
        policies: dict[str, str] = {}
        groups, payloads = pack_outcomes(outcomes, policies)
        letters, alive, answer = await self._call("turn", session, groups, claim, offer, encode(policies), *payloads)
        verdicts: list[Verdict] = [_VERDICTS[letter] for letter in cast("bytes", letters)]
        if request is None or answer is None:
            return TurnResult(verdicts, alive=bool(alive))
        claimed, unnamed = await self._with_policies(partial(_unpack_claim, answer))
        self._client.clock.set(claimed.now)
        if unnamed:
            await self._call("set_aside", session, claimed.fence, *unnamed)
        return TurnResult(verdicts, claimed)

    async def note(self, notes: Sequence[Note]) -> Sequence[Lease]:
        args: list[Any] = []
        for note in notes:
            lease = note.lease
            args += (pack_uuid(lease.uuid), lease.fence, lease.session, note.kind, note.name, note.data)
        answers = await self._call("note", *args) if notes else ()
        return [note.lease for note, valid in zip(notes, answers, strict=True) if not valid]

    async def cancel(self, session: str, uuids: Sequence[str], reason: str = "") -> LeasedTasks:
        fence, records = await self._call("cancel", session, reason, CLIENT_LEASE, *pack_each_uuid(uuids))
        rows = await self._with_policies(partial(to_records, records))
        return LeasedTasks(fence, [*rows.records, *rows.undecodable])

    async def lift(self, session: str, uuids: Sequence[str]) -> LeasedTasks:
        fence, records = await self._call("lift", session, CLIENT_LEASE, *map(pack_uuid, uuids))
        rows = await self._with_policies(partial(to_records, records))
        return LeasedTasks(fence, [*rows.records, *rows.undecodable])

    async def adopt(self, records: Sequence[Record]) -> Sequence[Added]:
        policies: dict[str, str] = {}
        numbers, payloads = pack_copies(records, policies)
        return _added(records, await self._call("adopt", encode(policies), numbers, *payloads))

    async def revive(self, uuids: Sequence[str]) -> Sequence[str]:
        return [to_uuid(uuid) for uuid in await self._call("revive", *map(pack_uuid, uuids))]

    async def signal(self, signals: Sequence[NewSignal]) -> Sequence[bool]:
        if not signals:
            return []
        args = [field for each in signals for field in (each.name, each.id, each.payload, each.keep)]
        answer = await self._call("signal", MAX_KEPT_SIGNALS, *args)
        if isinstance(answer, bytes):
            raise StoreFull(
                f"{MAX_KEPT_SIGNALS} signals are kept under the name {answer.decode()!r}: put an id into the name, "
                "or keep signals for a shorter time"
            )
        return [bool(is_new) for is_new in answer]

    # -- sessions

    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        alive, *rest = await self._call("heartbeat", session, info, lease)
        if not alive:
            return HeartbeatResult(alive=False)
        (runs,) = rest
        pairs = zip(runs[::2], runs[1::2], strict=True)
        return HeartbeatResult(True, [Lease(to_uuid(uuid), fence, session) for uuid, fence in pairs])

    async def close_session(self, session: str, *, crashed: bool = False) -> None:
        while await self._call("close_session", session, int(crashed)):
            pass  # its tasks are requeued one batch per call

    async def subscribe(self, session: str, uuids: Sequence[str]) -> None:
        await self._call("subscribe", session, CLIENT_LEASE, MAX_SUBSCRIPTIONS, *map(pack_uuid, uuids))

    def hints(self, session: str) -> Hints:
        return RedisHintStream(session, self._subscribe, self._with_policies, self._address.shown)

    async def _subscribe(self, session: str) -> RedisSubscription:
        return await self._client.listen(self.prefix, f"{self.prefix}hints", f"{self.prefix}to:{session}")

    # -- control

    async def put_schedules(self, schedules: Sequence[Schedule]) -> Sequence[bool]:
        if not schedules:
            return []
        rules = [schedule.rule for schedule in schedules]
        answers = await self._call("put_schedules", encode([pack_schedule(each) for each in schedules]), *rules)
        return [bool(answer) for answer in answers]

    async def put_limits(self, limits: Sequence[Limit], replaces: Sequence[Limit] = ()) -> bool:
        if not limits and not replaces:
            return True
        packed = [encode([pack_limit(limit) for limit in each]) for each in (limits, replaces)]
        return bool(await self._call("put_limits", *packed))

    async def fire(self, fires: Sequence[FireRequest]) -> Sequence[bool]:
        policies: dict[str, str] = {}
        requests = [
            (fire.name, fire.rev, fire.next_at, fire.last_at, group_tasks(fire.tasks, policies), len(fire.tasks))
            for fire in fires
        ]
        payloads = [payload for each in fires for payload in pack_tasks(each.tasks)]
        return [bool(answer) for answer in await self._call("fire", encode(requests), encode(policies), *payloads)]

    async def delete_schedules(self, schedules: Sequence[str]) -> None:
        if schedules:
            await self._call("delete_schedules", *schedules)

    async def write_series(self, entries: Sequence[SeriesEntry], replaces: Sequence[SeriesEntry] = ()) -> bool:
        series_rules.check(entries, replaces)
        return bool(await self._call("write_series", *pack_entries(entries, replaces)))

    async def purge(self, limit: int, most: int = 1_000_000) -> int:
        purged = 0
        rules = pack_retention()
        while True:
            dropped, more = cast("list[int]", await self._call("purge", min(limit - purged, _PURGE), most, *rules))
            purged += dropped
            if purged >= limit or not (more or dropped == _PURGE):
                return purged

    def after_fork(self) -> None:
        """The connections stay the parent's."""
        keep_over_fork(self._clients)
        self._clients = {}


def _added(tasks: Sequence[NewTask | Record], holders: Sequence[bytes] | None) -> list[Added]:
    if holders is None:
        return [Added(task.uuid, fresh=True) for task in tasks]
    return [
        Added(to_uuid(holder), fresh=False) if holder else Added(task.uuid, fresh=True)
        for task, holder in zip(tasks, holders, strict=True)
    ]


def _pack_pool(pool: SlotPool) -> list[Any]:
    packed: list[Any] = [pool.total]
    for source, capacity in pool.capacity.items():
        packed += (source, capacity)
    return packed


def _pack_offer(request: ClaimRequest) -> bytes:
    """ms, the number of the next request, then 0, name, 1 and capacity of each source (lua/lib/handoff.lua)."""
    offer = request.offer
    if offer is None:
        return b""
    sources = [
        b"\0%b\1%b" % (name.encode(), min(most, 65_535).to_bytes(2, "big")) for name, most in offer.capacity.items()
    ]
    return _OFFER.pack(offer.valid_ms, request.number + 1) + b"".join(sources)


def _unpack_claim(answer: Sequence[Any]) -> tuple[ClaimResult, list[bytes]]:
    """A task that cannot be read is a chore; the seqs of those whose uuid cannot be read are apart."""
    summary, task_rows, chore_rows, schedules = answer
    fence, idle, woken, next_in, more, now, identity, last_fence = decode(summary)
    tasks = to_records(task_rows)
    chores = to_records(chore_rows)
    claimed = ClaimResult(
        fence, tasks.records, [*chores.records, *chores.undecodable, *tasks.undecodable], to_schedules(schedules),
        {source: or_none(wait) for source, wait in idle}, frozenset(woken),
        or_none(next_in), more, now, StoreIdentity(identity or "", last_fence),
    )  # fmt: skip
    return claimed, [*tasks.unnamed, *chores.unnamed]
