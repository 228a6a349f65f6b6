"""Hand-off: the call that adds a task leases it to an idle worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from onthedot.clock.manual import ManualClock
from onthedot.model.uuid7 import new_uuid
from onthedot.stores.contract import HandoffOffer, Limit, NewTask, Policy, Schedule
from onthedot.stores.redis import RedisStore
from tests.contract.steps import Worker, add, look, names, state, states, task, tasks
from tests.contract.test_hints import Listener, listening
from tests.support.services import valkey
from tests.support.waits import until

FOR = 1000.0


@dataclass
class Place:
    store: RedisStore
    clock: ManualClock
    worker: Worker
    listener: Listener

    async def waits(self, **room: int) -> None:
        claimed = await self.worker.claim("a", "b", offer=HandoffOffer(room or {"a": 5, "b": 5}, FOR))
        assert (claimed.fence, claimed.more) == (0, False)


@asynccontextmanager
async def place(url: str) -> AsyncIterator[Place]:
    clock = ManualClock()
    store = RedisStore(url, clock, valkey.new_name())
    await store.open()
    worker = Worker(store, "w")
    listener = await listening(store, worker)
    yield Place(store, clock, worker, listener)
    await listener.leave()
    await store.close()
    valkey.forget(store.prefix)


@pytest.fixture(params=["all rights", "few rights"])
def url(request: pytest.FixtureRequest) -> str:
    return valkey.url() if request.param == "all rights" else valkey.limited_url()


async def test_add_leases_and_publishes_the_task_in_one_step(url: str) -> None:
    async with place(url) as at:
        await at.waits()
        cursor = (await at.store.changes("", 1)).cursor
        added = await add(at.store, task("b"), task("b"))
        hint = await at.listener.hears(lambda hint: hint.handoff)
        assert hint.handoff is not None
        assert (hint.handoff.number, names(hint.handoff.leased.tasks)) == (at.worker.number + 1, added)
        assert [record.body for record in hint.handoff.leased.tasks] == [
            (await look(at.store, uuid)).body for uuid in added
        ]
        assert await states(at.store, added) == ["running", "running"]
        assert await at.store.tally() == {("b", "running"): 2}
        (entry,) = (await at.store.changes(cursor, 10, resolve=10)).entries
        assert [(each.uuid, each.state) for each in entry.transitions] == [
            *((uuid, "ready") for uuid in added), *((uuid, "running") for uuid in added)
        ]  # fmt: skip


async def test_claim_request_after_a_handoff_is_a_new_one(url: str) -> None:
    async with place(url) as at:
        await at.waits()
        (first,) = await add(at.store, task())
        assert await at.worker.runs() == [first]
        (second,) = await add(at.store, task())
        assert await at.worker.runs() == [second]
        assert await at.worker.settle(at.worker.done(first), at.worker.done(second)) == ["ok", "ok"]


async def test_late_claim_request_takes_nothing_and_returns_more(url: str) -> None:
    """Its answer was lost, and a hand-off has used the next number."""
    async with place(url) as at:
        await at.waits()
        handed, ready = await add(at.store, task()) + await add(at.store, task())
        late = await at.worker.claim(repeat=True, offer=HandoffOffer({"a": 5}, FOR))
        assert (late.fence, names(late.tasks), late.more) == (0, [], True)
        await add(at.store, task("b"))
        assert await at.worker.runs("a", "b") == [handed], "the late one did not begin to wait"
        assert (await at.worker.runs("a", "b"))[0] == ready


async def not_handed_out(at: Place, *new: NewTask) -> None:
    added = await add(at.store, *new)
    assert await states(at.store, added) == ["ready"] * len(added)
    await at.listener.hears(lambda hint: new[0].source in hint.sources)


async def test_expired_offer_gets_no_handoff(url: str) -> None:
    async with place(url) as at:
        await at.waits()
        at.clock.advance(FOR)
        await not_handed_out(at, task())


async def test_handoff_respects_the_capacity_of_the_offer(url: str) -> None:
    async with place(url) as at:
        await at.waits(a=2)
        await not_handed_out(at, *tasks(3))


async def test_large_tasks_are_not_handed_off(url: str) -> None:
    """By default a server disconnects a subscriber with 32 MB of unread output."""
    async with place(url) as at:
        await at.waits(a=5)
        await not_handed_out(at, *(task(body=b"x" * 300_000) for _ in range(4)))


async def test_sources_outside_the_offer_are_not_handed_off(url: str) -> None:
    async with place(url) as at:
        await at.waits(a=2, aa=2)
        await not_handed_out(at, task("b"))


async def test_capacity_bytes_are_not_taken_for_a_source(url: str) -> None:
    async with place(url) as at:
        await at.waits(c=ord("b"), d=1)
        await not_handed_out(at, task("b"))


@pytest.mark.parametrize("by", ["code", "operator"])
async def test_limited_source_is_not_handed_off(url: str, by: str) -> None:
    async with place(url) as at:
        await at.waits()
        await at.store.put_limits([Limit("a", cap=1, owner=by)])  # type: ignore[arg-type]
        await not_handed_out(at, task())


async def test_task_behind_ready_tasks_is_not_handed_off(url: str) -> None:
    async with place(url) as at:
        await at.waits(a=1)
        first = await add(at.store, *tasks(2))
        await add(at.store, task())
        assert await at.worker.runs(total=2) == first


async def test_caller_without_the_right_to_publish_hands_nothing_off(server: valkey.Server) -> None:
    async with place(server.url) as at:
        await at.waits()
        assert server.ask("ACL", "SETUSER", "default", "-publish") == b"+OK"
        added = await add(at.store, task())
        assert await states(at.store, added) == ["ready"]
        assert await at.store.tally() == {("a", "ready"): 1}


@pytest.mark.parametrize("older", [{"unique": "k"}, {}], ids=["added alone", "one of too many"])
async def test_no_handoff_before_older_tasks_of_other_sources(url: str, older: dict[str, Any]) -> None:
    """Notified workers claim again, by rank."""
    async with place(url) as at:
        await at.waits(a=1, b=1)
        first, *_ = await add(at.store, *(task("b", **older) for _ in range(1 if older else 2)))
        await not_handed_out(at, task("a"))
        assert await at.worker.runs("a", "b", total=1) == [first]


@pytest.mark.parametrize("policy", [Policy(expires=1000), Policy(max_crashes=1)])
async def test_tasks_that_a_turn_must_check_are_not_handed_off(url: str, policy: Policy) -> None:
    async with place(url) as at:
        await at.waits()
        await not_handed_out(at, NewTask(new_uuid(), "a", b"", policy=policy))


async def test_worker_without_a_subscription_gets_no_handoff(url: str) -> None:
    async with place(url) as at:
        await at.waits()
        await at.listener.leave()
        with redis.Redis.from_url(valkey.url()) as client:
            await until(lambda: client.pubsub_numsub(f"{at.store.prefix}to:w")[0][1] == 0)
        (uuid,) = await add(at.store, task())
        assert await state(at.store, uuid) == "ready"


async def test_handed_off_task_is_requeued_when_its_worker_dies(url: str) -> None:
    async with place(url) as at:
        other = Worker(at.store, "other")
        await other.heartbeat()
        await at.waits()
        (uuid,) = await add(at.store, task())
        await at.store.close_session("w", crashed=True)
        assert await other.runs() == [uuid]
        assert (await look(at.store, uuid)).attempt == 2


@pytest.mark.parametrize("end", ["death", "close"])
async def test_ended_session_has_no_offer(url: str, end: str) -> None:
    async with place(url) as at:
        await at.waits()
        await (at.store.close_session("w") if end == "close" else at.store.close_session("w", crashed=True))
        (uuid,) = await add(at.store, task())
        assert await state(at.store, uuid) == "ready"


async def test_full_server_accepts_claim_requests_and_offers(server: valkey.Server) -> None:
    async with place(server.url) as at:
        assert server.ask("CONFIG", "SET", "maxmemory", "1") == b"+OK"
        await at.waits()
        await at.waits()
        assert server.ask("CONFIG", "SET", "maxmemory", "0") == b"+OK"
        (uuid,) = await add(at.store, task())
        assert await state(at.store, uuid) == "running"


async def test_due_schedule_that_no_worker_declares_does_not_end_the_hand_off(url: str) -> None:
    """An orphan stays due: idle workers are registered all the same."""
    async with place(url) as at:
        await at.store.put_schedules([Schedule("orphan", b"rule", "digest", int(at.clock.now()))])
        at.clock.advance(1000)
        await at.waits()
        (uuid,) = await add(at.store, task("a"))
        hint = await at.listener.hears(lambda hint: hint.handoff)
        assert hint.handoff is not None
        assert names(hint.handoff.leased.tasks) == [uuid]
