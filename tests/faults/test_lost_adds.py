"""The reply of an add is lost: the store repeats the call, and each task runs once and at once."""

from __future__ import annotations

import asyncio

import pytest

from onthedot import App
from tests.faults.proxy import proxy
from tests.faults.server_stores import ServerStore
from tests.support.waits import until

pytestmark = pytest.mark.fault
LEASE = 30  # seconds; longer than the test
FAST_POLL = 0.02  # seconds
TASKS = 500
NAME = "note" * 50
REPLY = {"postgres": 250, "redis": 1}
"""The least size of a reply to an add. On Postgres it names the source, and no other reply is as long; on Redis the
client gets no other reply."""


def shop(url: str, ran: list[int], poll_interval: float) -> App[None]:
    app: App[None] = App("shop", store=url, poll_interval=poll_interval, concurrency=100)

    @app.task(name=NAME, keep=0)
    async def note(number: int) -> None:
        ran.append(number)

    return app


@pytest.mark.parametrize("poll_interval", [60, FAST_POLL])
@pytest.mark.parametrize("server_store", ["redis", "postgres"], indirect=True)
async def test_tasks_of_an_add_whose_reply_is_lost_run_once_and_at_once(
    server_store: ServerStore, poll_interval: float
) -> None:
    """Without a poll, only the hint of the repeat starts them; with a fast one, they may end before the repeat."""
    ran: list[int] = []
    with proxy(server_store.port) as link:
        worker = shop(server_store.url(LEASE), ran, poll_interval)
        client = shop(server_store.url(LEASE, link.port), [], 60)
        async with worker, client, worker.running():
            note = client.named(NAME)
            await note.enqueue(number=-1)
            await until(lambda: ran == [-1])
            link.swallow_reply(least=REPLY[server_store.name])
            added = await client.enqueue_many([note.s(number=number) for number in range(TASKS)])
            assert link.counts["swallow"] == 1
            assert len({handle.uuid for handle in added}) == TASKS
            await until(lambda: len(ran) > 1)  # much sooner than the poll
            await until(lambda: len(ran) > TASKS)
            await asyncio.sleep(3 * FAST_POLL)  # a second run of a task would begin with the next poll
    assert sorted(ran) == [-1, *range(TASKS)]
