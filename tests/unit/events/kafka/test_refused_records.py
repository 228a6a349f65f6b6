"""Records that a rule of their topic refuses are refused alone; the topic stays available."""

from __future__ import annotations

import pytest

from onthedot.events.bus import BusMessage, RecordRefused
from onthedot.events.kafka import KafkaBus
from onthedot.events.settings import Kafka
from tests.support.services.kafka import KafkaService

pytestmark = pytest.mark.once


async def test_record_without_key_is_refused_alone_by_a_compacted_topic(kafka: KafkaService) -> None:
    topic = kafka.topic(1, {"cleanup.policy": "compact"})
    bus = KafkaBus(Kafka(kafka.address))
    batch = [BusMessage(b"k" if number != 2 else None, b"%d" % number) for number in range(5)]
    with pytest.raises(RecordRefused, match="Error 87") as refusal:
        await bus.send(topic, 0, batch)
    assert refusal.value.index == 2
    await bus.send(topic, 0, batch[3:])
    values = [record.message.value async for record in bus.peek(topic)]
    await bus.close()
    assert values == [b"0", b"1", b"3", b"4"]
