"""One bad item among a hundred tasks: the others end within seconds, the bad one fails with a reason, and can be seen.

Each run adds, claims, promotes, settles, finds and purges with the item in the store, on all four stores.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from onthedot import App, ArgumentError, AsyncTaskHandle, TaskNotFound, current_task
from onthedot.operations.doctor import diagnose
from onthedot.stores.contract import Limit, Schedule, Store
from onthedot.stores.memory import MemoryStore
from onthedot.stores.postgres import PostgresStore
from onthedot.stores.redis import RedisStore
from onthedot.stores.redis.uuid_format import pack_uuid
from onthedot.stores.sqlite import SqliteStore
from tests.contract.damage import add_policy_field, damage_policy, run_on_file
from tests.support.app_stores import AppStore, app_store
from tests.support.services import valkey
from tests.support.services.postgres import Service
from tests.support.waits import SOON, until

pytestmark = [pytest.mark.fault, pytest.mark.timed]
__all__ = ["app_store"]
GOOD = 99
IN_TIME = 5.0  # seconds: one bad item does not hold up the others
Damage = Callable[[Store, str], Awaitable[object]]
BAD_OPTIONS: dict[str, Any] = {
    "unique, lone surrogate": {"unique": "\ud800"},
    "unique, NUL": {"unique": "a\0b"},
    "tag, lone surrogate": {"tags": ["\ud800"]},
    "tag, NUL": {"tags": ["a\0b"]},
}


async def remove_policy(store: Store, uuid: str) -> None:
    match store:
        case SqliteStore():
            run_on_file(store, "UPDATE onthedot_task SET policy = '' WHERE uuid = ?", uuid)
        case PostgresStore():
            Service.current.ask("UPDATE onthedot.task SET policy = '' WHERE uuid = %s", uuid)
        case RedisStore():
            await add_policy_field(store, uuid)  # a policy of its own
            with redis.Redis.from_url(valkey.url()) as client:
                texts: Any = client.hgetall(f"{store.prefix}policies")
                client.hdel(f"{store.prefix}policies", *(digest for digest, text in texts.items() if b"newer" in text))


async def damage_record(store: Store, uuid: str) -> None:
    """SQL stores keep columns: of these, the body is opaque."""
    match store:
        case SqliteStore():
            run_on_file(store, "UPDATE onthedot_task SET body = x'ff' WHERE uuid = ?", uuid)
        case PostgresStore():
            Service.current.ask("UPDATE onthedot.task SET body = '\\xff' WHERE uuid = %s", uuid)
        case RedisStore():
            _set_field(store, "task", uuid, b"cut")


async def damage_history(store: Store, uuid: str) -> None:
    match store:
        case SqliteStore():
            select = "SELECT seq, due, state, 'due', 0, 0, 0, 0, 0, x'ff' FROM onthedot_task WHERE uuid = ?"
            columns = "seq, due, state, reason, retries, crashes, earlier, cancel, settled, error"
            run_on_file(store, f"INSERT INTO onthedot_history ({columns}) {select}", uuid)
        case PostgresStore():
            Service.current.ask("UPDATE onthedot.task SET error = '\\xff' WHERE uuid = %s", uuid)
        case RedisStore():
            _set_field(store, "history", uuid, b"cut")


def _set_field(store: RedisStore, key: str, uuid: str, value: bytes) -> None:
    with redis.Redis.from_url(valkey.url()) as client:
        seq: Any = client.hget(f"{store.prefix}ids", pack_uuid(uuid))
        client.hset(f"{store.prefix}{key}", seq, value)


async def put_bad_schedule(store: Store, uuid: str) -> None:
    await store.put_schedules([Schedule("broken", b"\xff{", "", 1)])


async def put_bad_limit(store: Store, uuid: str) -> None:
    await store.put_limits([Limit("send", lane_rule=b"{broken"), Limit("@other", lane_rule=b"{broken")])


async def put_bad_session(store: Store, uuid: str) -> None:
    await store.heartbeat("broken", b"\xff{", 60_000)


DAMAGES: dict[str, Damage] = {
    "policy unreadable": damage_policy,
    "policy missing": remove_policy,
    "newer field in policy": add_policy_field,
    "record": damage_record,
    "history": damage_history,
    "schedule": put_bad_schedule,
    "limit": put_bad_limit,
    "session info": put_bad_session,
}
NAMED_BY_DOCTOR = {
    "schedule": "schedule: broken ",
    "limit": "limit: the limits of @other by key cannot be read",
    "session info": "session: the description of session broken cannot be read",
}
UNDECODABLE = ("policy unreadable", "policy missing")
NOT_IN_MEMORY = (*UNDECODABLE, "record", "history", "newer field in policy")  # it keeps objects


def shop(at: AppStore) -> App[Any]:
    app: App[Any] = App(at.name, store=at.url, poll_interval=0.2, concurrency=50)

    @app.task
    async def send(number: int) -> int:
        return number

    @app.task(max_retries=0)
    async def spawn(option: str) -> None:
        current_task().spawn(send.options(**BAD_OPTIONS[option]).s(1))

    return app


async def run_beside(app: App[Any], bad: AsyncTaskHandle[Any], good: list[AsyncTaskHandle[Any]]) -> None:
    """The worker runs; the good tasks end in time, and also one that is added later."""
    async with app.running():
        await until(lambda: _all_done(good), IN_TIME)
        assert await (await app.named("send").enqueue(number=100)).result(timeout=IN_TIME) == 100
        await until(lambda: _has_ended(bad), IN_TIME)
    assert [await handle.result(timeout=SOON) for handle in good] == list(range(GOOD))


async def _all_done(handles: list[AsyncTaskHandle[Any]]) -> bool:
    return all([await handle.done() for handle in handles])


async def _has_ended(handle: AsyncTaskHandle[Any]) -> bool:
    """A record whose uuid cannot be read is set aside: then there is no such task."""
    try:
        return await handle.done()
    except TaskNotFound:
        return True


async def findings(app: App[Any]) -> str:
    """The report of `doctor`."""
    checks = await app.runtime.portal.run(lambda client: diagnose(client.operations))
    return "\n".join(f"{check.what}: {check.text}" for check in checks if not check.ok)


async def check_bad(app: App[Any], kind: str, uuid: str) -> None:
    """The task of a record that cannot be read has failed with a reason, and `doctor` names it."""
    is_redis = isinstance(app.runtime.store, RedisStore)
    if is_redis and kind == "record":
        assert "undecodable" in await findings(app)
        return
    info = await app.get(uuid)
    if kind in UNDECODABLE or (is_redis and kind == "history"):
        assert info.state == "failed"
        assert info.error is not None
        assert info.error.message
        assert "undecodable" in await findings(app)
    elif kind == "record":
        assert info.state == "failed"
    else:
        assert info.state == "succeeded"


async def check_that_it_can_be_seen_and_purged(app: App[Any], ended: int) -> None:
    assert len(await app.find(limit=1000)) == ended
    assert await app.runtime.store.purge(1000, 0) == ended
    # On Redis the lost record may have been the only place that named its source.
    await app.runtime.portal.run(lambda client: diagnose(client.operations, repair=True))
    set_aside = await app.runtime.portal.run(lambda client: client.operations.set_aside())
    tally = await app.runtime.store.tally()
    assert [key for key, number in tally.items() for _ in range(number)] == [("?", "failed") for _ in set_aside]


@pytest.mark.parametrize("after", [0, 0.5], ids=["ready", "scheduled"])
@pytest.mark.parametrize("kind", DAMAGES)
async def test_one_bad_item_affects_its_own_task_only(app_store: AppStore, kind: str, after: float) -> None:
    app = shop(app_store)
    async with app:
        store = app.runtime.store
        if isinstance(store, MemoryStore) and kind in NOT_IN_MEMORY:
            pytest.skip("the memory store keeps objects, which are always readable")
        send = app.named("send")
        numbers = range(GOOD)
        good = [await send.options(after=number % 2 * 0.5).enqueue(number=number) for number in numbers[:50]]
        bad = await send.options(after=after).enqueue(number=-1)
        good += [await send.options(after=number % 2 * 0.5).enqueue(number=number) for number in numbers[50:]]
        await DAMAGES[kind](store, bad.uuid)
        await run_beside(app, bad, good)
        await check_bad(app, kind, bad.uuid)
        if kind in NAMED_BY_DOCTOR:
            assert NAMED_BY_DOCTOR[kind] in await findings(app)
        set_aside = isinstance(store, RedisStore) and kind == "record"
        await check_that_it_can_be_seen_and_purged(app, GOOD + 1 + (not set_aside))


@pytest.mark.parametrize("option", BAD_OPTIONS)
async def test_outcome_with_a_bad_option_affects_its_own_task_only(app_store: AppStore, option: str) -> None:
    """A task spawns another one with it."""
    app = shop(app_store)
    async with app:
        good = [await app.named("send").enqueue(number=number) for number in range(GOOD)]
        bad = await app.named("spawn").enqueue(option=option)
        await run_beside(app, bad, good)
        info = await bad.info()
        assert info.state == "failed"
        assert info.error is not None
        assert info.error.type.endswith("ArgumentError")
        with pytest.raises(ArgumentError, match="no store can keep"):
            await app.named("send").options(**BAD_OPTIONS[option]).enqueue(number=1)
