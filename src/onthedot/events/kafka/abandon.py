"""Ends clients of aiokafka that do not stop by themselves, since no server answers (aiokafka#1101).

Their tasks have no public name, so this is the one file that uses private names of aiokafka.
"""

from __future__ import annotations

import asyncio
from typing import Any

from onthedot.events.kafka.connection import Client


async def abandon_producer(producer: Client) -> None:
    """Batches that are not sent stay unsent, and those who await them are not answered."""
    producer._closed = True  # otherwise it warns when it is deleted
    await _cancel(producer._sender.sender_task)
    await _close(producer.client)


async def abandon_consumer(consumer: Client) -> None:
    """The group notices its end after the session timeout."""
    tasks = consumer._coordinator
    await _cancel(tasks._coordination_task, tasks._heartbeat_task, tasks._commit_refresh_task)
    await consumer._fetcher.close()
    await _close(consumer._client)


async def _cancel(*tasks: asyncio.Task[Any] | None) -> None:
    """One that awaits its own tasks once it is cancelled is cancelled again."""
    left = {task for task in tasks if task is not None and not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.05)


async def _close(client: Client) -> None:
    """Nothing waits for the next metadata of a client whose tasks are cancelled."""
    await client.close()
    update = client._md_update_fut
    if update is not None and not update.done():
        update.set_result(False)
