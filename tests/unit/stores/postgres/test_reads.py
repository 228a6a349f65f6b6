"""How much a claim looks at: a lane that is shut must not cost a look at all sources for each of its tasks."""

from __future__ import annotations

import psycopg

from onthedot.stores.contract import ClaimRequest, Limit, NewTask, SlotPool
from onthedot.stores.postgres import PostgresStore
from tests.support.waits import until
from tests.unit.stores.postgres.shop import LEASE

SHUT, OTHERS = 800, 30
LOOKS = "SELECT idx_scan FROM pg_stat_user_tables WHERE schemaname = 'onthedot' AND relname = 'place'"


def looks(url: str) -> int:
    with psycopg.connect(url) as connection:
        return int(connection.execute(LOOKS).fetchone()[0] or 0)  # type: ignore[index]


async def test_behind_many_that_find_their_lane_shut(empty: str) -> None:
    others = {f"other{number}": 1 for number in range(OTHERS)}
    store = PostgresStore(empty)
    await store.open()
    await store.heartbeat("w", b"", LEASE)
    await store.add([NewTask(f"u{number:05}", "a", b"", lane="a/k") for number in range(SHUT)])
    await store.add([NewTask(name, name, b"") for name in others])
    await store.turn("w", [], ClaimRequest(1, [SlotPool(1, {"b": 1})]))  # those of the lane become ready
    await store.put_limits([Limit("a/*", paused=True)])
    await store.close()  # its connections tell their statistics when they end
    await until(lambda: looks(empty) > SHUT)
    before = looks(empty)
    await store.open()
    turn = await store.turn("w", [], ClaimRequest(2, [SlotPool(OTHERS, {"a": 1} | others)]))
    assert turn.claim is not None
    assert sorted(record.source for record in turn.claim.tasks) == sorted(others)
    assert (await store.tally())["a", "parked"] == SHUT
    await store.close()
    await until(lambda: looks(empty) > before + SHUT)  # each is parked by its number
    assert looks(empty) - before < 10 * SHUT
