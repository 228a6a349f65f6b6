"""A client that cancels for a long time: the last cancels cost the server as much as the first ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from onthedot.stores.contract import Ended, Lease, NewTask
from onthedot.stores.postgres import PostgresStore
from tests.faults import LONG, scaled
from tests.support.services.postgres import Service
from tests.unit.stores.postgres.shop import opened

pytestmark = [pytest.mark.once, pytest.mark.timed]

PART = scaled(200, 1_000)  # cancels; six parts
SLICES = 5  # of a part; the cheapest one counts, since another program may disturb the others
SLOWER = 1.2 if LONG else 1.5


async def cancel_tasks(store: PostgresStore, uuids: list[str]) -> None:
    for uuid in uuids:
        leased = await store.cancel("client", [uuid])
        lease = Lease(uuid, leased.fence, "client")
        turn = await store.turn("client", [Ended(lease, "cancelled", b"{}", 60_000)], None)
        assert list(turn.verdicts) == ["ok"]


def processor_time(pid: int) -> int:
    """Nanoseconds that a process of the server has run."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


@pytest.mark.long
async def test_cancels_cost_the_same_after_six_thousand_of_them(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        uuids = [f"u{number}" for number in range(6 * PART)]
        for start in range(0, len(uuids), 1000):
            await store.add([NewTask(uuid, "a", b"") for uuid in uuids[start : start + 1000]])
        await cancel_tasks(store, uuids[:10])  # opens the connections
        pids = [pid for pid, _ in postgres.left()]
        try:
            list(map(processor_time, pids))
        except FileNotFoundError:
            pytest.skip("the server runs elsewhere")
        costs = []
        for start in range(0, len(uuids), PART):
            size = PART // SLICES
            slices = []
            for first in range(start, start + PART, size):
                before = sum(map(processor_time, pids))
                await cancel_tasks(store, uuids[max(10, first) : first + size])
                slices.append((sum(map(processor_time, pids)) - before) / (first + size - max(10, first)))
            costs.append(min(slices))
        print(f"\nms of the processor per cancel: {[round(cost / 1e6, 3) for cost in costs]}")
        assert costs[-1] <= SLOWER * costs[0]
    assert postgres.ask("SELECT count(*) FROM onthedot.claim")[0][0] == 0
