"""How many events of the bus an agent has not handled, for ``onthedot source drain --bus``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from onthedot.events.settings import Kafka
from onthedot.operations import Operations
from onthedot.supervisor.exit_codes import FAILED, CommandError


@asynccontextmanager
async def open_lag(
    operations: Operations, kafka: Kafka | None, group: str
) -> AsyncGenerator[Callable[[], Awaitable[int]]]:
    """A function that counts the events which a group has not committed. kafka: None for the store bus."""

    async def of_store_bus() -> int:
        groups = (await operations.outbox.status()).groups
        lag = next((each.lag for each in groups if each.group == group), None)
        if lag is None:
            raise CommandError(f"the group {group} has read nothing from this store; does it read another bus?", FAILED)
        return lag

    if kafka is None:
        yield of_store_bus
        return
    from onthedot.events.kafka.inspection import open_lag as of_kafka  # an extra

    async with of_kafka(kafka, group) as lag:
        yield lag
