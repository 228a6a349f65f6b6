"""Other programs read every header of an event from Kafka, by a client that knows nothing of onthedot."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.partitioner import DefaultPartitioner

from onthedot import App
from onthedot.events import Event, Events
from tests.support.services.kafka import KafkaService, new_name
from tests.support.waits import SOON

pytestmark = pytest.mark.once

PARTITIONS = range(3)
WHOLE: dict[str, Any] = {
    "id": "order-17", "aggregate_id": "17", "aggregate_type": "Order", "key": "customer-4", "correlation_id": "cmd-1",
    "causation_id": "cmd-0", "version": 3, "retries": 2, "priority": 7, "headers": {"tenant": "acme"},
}  # fmt: skip
WHOLE_HEADERS = {
    "content-type": "application/json", "ce_specversion": "1.0", "ce_id": "order-17", "ce_type": "Shop.Order.Placed",
    "ce_source": "/shop", "ce_subject": "17", "ce_aggregatetype": "Order",
    "ce_partitionkey": "customer-4", "ce_correlationid": "cmd-1", "ce_causationid": "cmd-0", "ce_dataversion": "3",
    "ce_retries": "2", "ce_priority": "7", "tenant": "acme",
}  # fmt: skip
SHORT: dict[str, Any] = {"id": "order-18", "aggregate_id": "18"}
SHORT_HEADERS = {
    "content-type": "application/json", "ce_specversion": "1.0", "ce_id": "order-18", "ce_type": "Shop.Order.Placed",
    "ce_source": "/shop", "ce_subject": "18", "ce_aggregatetype": "ShopOrder",
    "ce_partitionkey": "18", "ce_correlationid": "order-18", "ce_dataversion": "1", "ce_retries": "0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "headers"), [(WHOLE, WHOLE_HEADERS), (SHORT, SHORT_HEADERS)], ids=["all fields", "required fields"]
)
async def test_plain_client_reads_every_header_key_time_and_payload(
    fields: dict[str, Any], headers: dict[str, str], kafka: KafkaService, tmp_path: Path
) -> None:
    """Published into the outbox, and sent by a relay."""
    moment = datetime.now(UTC).replace(microsecond=5000) - timedelta(minutes=1)
    event = Event("Shop.Order.Placed", {"id": 17}, occurred_at=moment, **fields)
    topic = kafka.topic(len(PARTITIONS))
    events = Events(bus=f"kafka://{kafka.address}", topics={"Shop.Order.*": topic}, source="/shop")
    app = App(new_name(), store=f"sqlite:///{tmp_path}/shop.db", events=events, stop_timeout=1)
    async with app.running():
        await app.publish(event)
        record = await read_first(kafka.address, topic)
        (stored,) = await app.operations.outbox.events()
    read = {name: value.decode() for name, value in record.headers}
    assert len(read) == len(record.headers), "no header comes twice"
    assert read == {
        **headers,
        "ce_time": moment.strftime("%Y-%m-%dT%H:%M:%S.005Z"),
        "ce_sequence": str(stored.number),
    }
    assert record.key == event.key.encode()
    assert json.loads(record.value) == event.payload
    assert record.timestamp == round(moment.timestamp() * 1000)
    assert record.partition == DefaultPartitioner()(record.key, list(PARTITIONS), list(PARTITIONS))


async def read_first(address: str, topic: str) -> ConsumerRecord:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest")
    await consumer.start()
    try:
        async with asyncio.timeout(SOON):
            return await consumer.getone()
    finally:
        await consumer.stop()
