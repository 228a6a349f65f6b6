"""PgQueuer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from benchmarks.programs.stopwatch import COUNT, STORE, tick


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    """The factory of `pgq run`."""
    connection = await asyncpg.connect(STORE)
    queuer = PgQueuer(AsyncpgDriver(connection))

    @queuer.entrypoint("counted")
    async def counted(_: Any) -> None:
        tick()

    yield queuer
    await connection.close()


async def fill() -> None:
    connection = await asyncpg.connect(STORE)
    queries = Queries(AsyncpgDriver(connection))
    if not await queries.schema_is_installed():
        await queries.install()
    for start in range(0, COUNT, 1000):
        some = min(1000, COUNT - start)
        await queries.enqueue(["counted"] * some, [b"{}"] * some, [0] * some)
    await connection.close()


if __name__ == "__main__":
    asyncio.run(fill())
