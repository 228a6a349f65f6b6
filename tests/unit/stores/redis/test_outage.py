"""A server that restarts under load: callers wait for it, and nothing is refused or lost."""

from __future__ import annotations

import asyncio

import pytest

from onthedot import App
from tests.support.services import valkey
from tests.support.waits import SOON, until

pytestmark = [pytest.mark.fault, pytest.mark.timed]

OUTAGE = 2.0  # seconds
ADDS_PER_SECOND = 100


async def test_no_add_is_refused_while_the_server_restarts() -> None:
    with valkey.server("--appendonly", "yes", "--appendfsync", "always") as server:
        app: App[None] = App("shop", store=server.url)

        @app.task
        async def note(number: int) -> int:
            return number

        async with app:
            await note.enqueue(-1)
            adds: list[asyncio.Task[object]] = []

            async def add_steadily() -> None:
                while True:
                    adds.append(asyncio.create_task(note.enqueue(len(adds))))
                    await asyncio.sleep(1 / ADDS_PER_SECOND)

            adding = asyncio.create_task(add_steadily())
            await until(lambda: sum(add.done() for add in adds) > 20)
            port = server.port
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(OUTAGE)
            before = len(adds)
            await asyncio.to_thread(server.start, port)
            await until(lambda: sum(add.done() for add in adds) > before + 20)
            adding.cancel()
            added = len(await asyncio.gather(*adds))
            assert before > 100
            async with app.running():
                await until(lambda: _all_have_run(app, added + 1), SOON)


async def _all_have_run(app: App[None], number: int) -> bool:
    counts = await app.runtime.portal.run(lambda client: client.operations.counts())
    return {state: count for state, count in counts.items() if count} == {"succeeded": number}
