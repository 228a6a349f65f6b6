"""The batch as a flow of Prefect: it asks by events, pauses, and goes on when all answers have come.

python -m examples.genesis.flow SESSION TYPE COUNT     in the environment of Prefect, beside a running example
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from prefect import flow, get_run_logger

from examples.genesis.app import CREATED, FAILED, REQUESTED, Request, app
from examples.genesis.policy import SIZES
from onthedot.events import Event, event_id
from onthedot.integrations.prefect import prefect_run, wait_for

TIMEOUT = 60  # seconds for all answers


@flow(name="genesis_detail_batch_flow")
async def schedule_detail_batch(
    session_id: str,
    task_type: str,
    count: int,
    style: dict[str, Any],
    priority: int = 5,
) -> list[dict[str, Any]]:
    """The run of the flow is the command: a run that is repeated finds its handle and publishes nothing twice."""
    command_id = prefect_run()
    async with app:
        requests = [
            request(
                Request(session_id, event_id(command_id, index), task_type, size, style, priority), command_id, index
            )
            for index, size in enumerate(SIZES(task_type, count))
        ]
        handle = await app.expect(
            {(CREATED, FAILED): len(requests)}, correlation_id=command_id, timeout=TIMEOUT, wakes=prefect_run()
        )
        await app.publish(*requests)
        get_run_logger().info("dispatched=%d, handle=%s, first_response_target=2s", len(requests), handle.id)
        answers = await wait_for(handle)
    return [item for answer in answers if answer.type == CREATED for item in answer.payload["items"]]


def request(payload: Request, command_id: str, index: int) -> Event[Request]:
    payload.batch_id = command_id
    payload.batch_index = index
    return Event(
        REQUESTED,
        payload,
        aggregate_id=payload.session_id,
        key=payload.task_id,
        correlation_id=command_id,
        priority=payload.priority,
        id=event_id(command_id, "request", index),
    )


async def main(session_id: str, task_type: str, count: str) -> None:
    for item in await schedule_detail_batch(session_id, task_type, int(count), {}):
        print(item["name"])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
