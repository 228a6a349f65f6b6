"""Stops clients of aiokafka within 2 seconds. Their `stop()` waits for servers that do not answer (aiokafka#1101).

The tasks of a client have no public names, so this is the one file that uses private names of aiokafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from onthedot.events.kafka.connection import Client

STOP_TIMEOUT = 2.0  # seconds until a client is abandoned
_TASKS = ("_coordination_task", "_heartbeat_task", "_commit_refresh_task", "_reset_committed_task")


async def stop_producer(producer: Client) -> None:
    """Sends what it can. Batches that remain are abandoned: their futures are never resolved."""
    await _stop(_flush(producer), partial(_abandon_producer, producer))


async def stop_consumer(consumer: Client) -> None:
    """Leaves its group. The group notices an abandoned member after the session timeout."""
    await _stop(consumer.stop(), partial(_abandon_consumer, consumer))


async def _flush(producer: Client) -> None:
    await producer.flush()  # unlike `stop()` it leaves no task behind when it is cancelled
    await producer.stop()


async def _stop(stop: Coroutine[Any, Any, None], abandon: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """In a task of its own: `stop()` of a consumer may raise the CancelledError of a request that it has cancelled."""
    stopping = asyncio.create_task(stop)
    is_stopped = False
    try:
        await asyncio.wait([stopping], timeout=STOP_TIMEOUT)
        is_stopped = stopping.done() and not stopping.cancelled() and stopping.exception() is None
    finally:
        if not is_stopped:
            await _cancel(stopping)
            await abandon()


async def _abandon_producer(producer: Client) -> None:
    producer._closed = True  # otherwise it warns when it is deleted
    await _cancel(producer._sender.sender_task)
    await _close(producer.client)


async def _abandon_consumer(consumer: Client) -> None:
    coordinator = consumer._coordinator
    fetcher = consumer._fetcher
    if coordinator is not None:
        await _cancel(*(getattr(coordinator, name, None) for name in _TASKS))
    if fetcher is not None:
        await _cancel(fetcher._fetch_task, *fetcher._pending_tasks)
    await _close(consumer._client)


async def _cancel(*tasks: asyncio.Task[Any] | None) -> None:
    """A task that awaits its own tasks once it is cancelled is cancelled again."""
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
