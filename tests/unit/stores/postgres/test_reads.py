"""How much a claim reads: a lane without capacity must not cost a scan of all sources per task."""

from __future__ import annotations

import psycopg

from onthedot.stores.contract import ClaimRequest, Limit, NewTask, SlotPool
from onthedot.stores.postgres import PostgresStore
from tests.support.waits import until
from tests.unit.stores.postgres.shop import LEASE

PARKED = 800
OTHERS = 30
SCANS = "SELECT idx_scan FROM pg_stat_user_tables WHERE schemaname = 'onthedot' AND relname = 'place'"


def index_scans(url: str) -> int:
    with psycopg.connect(url) as connection:
        return int(connection.execute(SCANS).fetchone()[0] or 0)  # type: ignore[index]


async def test_parking_many_tasks_does_not_scan_all_sources_each_time(empty: str) -> None:
    others = {f"other{number}": 1 for number in range(OTHERS)}
    store = PostgresStore(empty)
    await store.open()
    await store.heartbeat("w", b"", LEASE)
    await store.add([NewTask(f"u{number:05}", "a", b"", lane="a/k") for number in range(PARKED)])
    await store.add([NewTask(name, name, b"") for name in others])
    await store.turn("w", [], ClaimRequest(1, [SlotPool(1, {"b": 1})]))  # admits the tasks of the lane
    await store.put_limits([Limit("a/*", paused=True)])
    await store.close()  # a connection reports its statistics when it ends
    await until(lambda: index_scans(empty) > PARKED)
    before = index_scans(empty)
    await store.open()
    turn = await store.turn("w", [], ClaimRequest(2, [SlotPool(OTHERS, {"a": 1} | others)]))
    assert turn.claim is not None
    assert sorted(record.source for record in turn.claim.tasks) == sorted(others)
    assert (await store.tally())["a", "parked"] == PARKED
    await store.close()
    await until(lambda: index_scans(empty) > before + PARKED)  # each is parked by its seq
    assert index_scans(empty) - before < 10 * PARKED
