"""A policy is stored once per source; a worker reads it when it needs it."""

from __future__ import annotations

import redis

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import ClaimRequest, NewTask, Policy, SlotPool
from onthedot.stores.redis import RedisStore
from onthedot.stores.redis.policy_format import known_policies
from tests.support.services import valkey

ASK = ClaimRequest(1, [SlotPool(10, {"a": 10, "b": 10})])


async def test_sources_that_share_a_policy_and_a_policy_that_is_gone() -> None:
    store = RedisStore(valkey.url(), ManualClock(), valkey.new_name())
    policy = Policy(boost=7)
    await store.open()
    await store.heartbeat("w", b"", 10**6)
    await store.add([NewTask(f"{source}{number}", source, b"", policy=policy) for source in "ab" for number in (1, 2)])
    with redis.Redis.from_url(valkey.url()) as client:
        texts = client.hgetall(f"{store.prefix}policies")
        assert len(texts) == 2
        known_policies.clear()  # as in another process
        client.delete(f"{store.prefix}policies")
        turn = await store.turn("w", [], ASK)
        assert turn.claim is not None
        assert {record.history.reason for record in turn.claim.chores} == {"undecodable"}
        assert len(turn.claim.chores) == 4
        client.hset(f"{store.prefix}policies", mapping=texts)
    turn = await store.turn("w", [], ASK)  # the same request: its tasks are still leased, and readable now
    assert turn.claim is not None
    found = {(record.uuid, record.source, record.policy) for record in turn.claim.tasks}
    assert found == {(f"{source}{number}", source, policy) for source in "ab" for number in (1, 2)}
    await store.close()
    valkey.forget(store.prefix)
