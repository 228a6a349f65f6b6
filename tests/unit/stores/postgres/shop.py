"""Helpers of the tests in this folder: a store on the server's clock, and a worker's claims."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from onthedot.stores.contract import ClaimRequest, ClaimResult, Outcome, SlotPool, Store
from onthedot.stores.postgres import PostgresStore
from tests.support.services.postgres import Service

LEASE = 60_000


@asynccontextmanager
async def opened(service: Service, app: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(service.url, name=app)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def states(store: Store, *uuids: str) -> list[str | None]:
    return [record and record.state for record in await store.get(uuids)]


class Worker:
    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self.number = 0

    async def claim(self, *sources: str, outcomes: Sequence[Outcome] = (), total: int = 10) -> ClaimResult:
        self.number += 1
        request = ClaimRequest(
            self.number, [SlotPool(total, dict.fromkeys(sources or ("a",), total))], max_suspects=100
        )
        turn = await self.store.turn(self.name, outcomes, request)
        assert turn.claim is not None
        return turn.claim
