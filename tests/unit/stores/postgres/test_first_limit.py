"""The first moment of a limit: turns that began before it was stored do not exceed it afterwards."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import asyncpg

from onthedot.stores.contract import Limit, NewTask
from onthedot.stores.postgres import PostgresStore
from tests.support.waits import until
from tests.unit.stores.postgres.shop import LEASE, Worker

BARRIER = 4711
# A turn promotes right after it has decided whether it needs the limits lock.
WAIT_AFTER_THE_DECISION = f"""
ALTER FUNCTION onthedot.promote_v1 RENAME TO promote_at_last_v1;
CREATE FUNCTION onthedot.promote_v1(
    _app integer, _now double precision, INOUT limits_locked boolean, OUT woken text[], OUT more boolean
) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({BARRIER});
    SELECT p.* INTO limits_locked, woken, more FROM promote_at_last_v1(_app, _now, limits_locked) AS p;
END $$;
"""
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


async def test_turns_in_flight_do_not_exceed_a_limit_that_is_stored_meanwhile(empty: str) -> None:
    async with AsyncExitStack() as stack:
        stores = [PostgresStore(empty, name="shop") for _ in range(3)]
        for store in stores:
            await store.open()
            stack.push_async_callback(store.close)
        operator = await asyncpg.connect(empty)
        stack.push_async_callback(operator.close)
        workers = [Worker(store, f"w{number}") for number, store in enumerate(stores)]
        for worker in workers:
            await worker.store.heartbeat(worker.name, b"", LEASE)
        await stores[0].add([NewTask(f"u{number}", "a", b"") for number in range(9)])
        await operator.execute(WAIT_AFTER_THE_DECISION)
        await operator.execute(f"SELECT pg_advisory_lock({BARRIER})")

        async def waiting(number: int) -> bool:
            return bool(await operator.fetchval(WAITING) == number)

        turns = [asyncio.create_task(worker.claim(total=3)) for worker in workers[:2]]
        await until(lambda: waiting(2))
        put = asyncio.create_task(stores[2].put_limits([Limit("a", cap=1)]))

        async def decided() -> bool:
            return put.done() or await waiting(3)

        await until(decided)
        is_first = put.done()  # otherwise it waits for the turns, which begin before the limit
        await operator.execute(f"SELECT pg_advisory_unlock({BARRIER})")
        claims = await asyncio.gather(*turns)
        await put
        started = sum(len(claim.tasks) for claim in claims)
        assert started <= (1 if is_first else 6)
        assert (await workers[2].claim(total=3)).tasks == []
