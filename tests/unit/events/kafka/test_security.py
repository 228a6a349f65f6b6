"""Connections are encrypted and log in as the settings say."""

from __future__ import annotations

import logging
import ssl
from typing import Any, Literal

import pytest

from onthedot.events.bus import BusMessage, BusUnreachable
from onthedot.events.kafka import KafkaBus
from onthedot.events.settings import Kafka
from tests.support.services.kafka import KafkaService
from tests.support.services.kafka_server import PASSWORD, USER

pytestmark = pytest.mark.once

Protocol = Literal["SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-512"]


def settings(
    kafka: KafkaService, protocol: Protocol, mechanism: Mechanism | None = None, password: str = PASSWORD
) -> Kafka:
    address, authority = kafka.secure(protocol)
    options: dict[str, Any] = {}
    if protocol.endswith("SSL"):
        options["ssl_context"] = ssl.create_default_context(cafile=authority)
    if mechanism is not None:
        options |= {"sasl_mechanism": mechanism, "sasl_username": USER, "sasl_password": password}
    return Kafka(address, security_protocol=protocol, **options)


async def on_revoked(_: object) -> None: ...


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SSL", None),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-512"),
    ],
)
async def test_bus_sends_and_reads(kafka: KafkaService, protocol: Protocol, mechanism: Mechanism | None) -> None:
    topic = kafka.topic()
    bus = KafkaBus(settings(kafka, protocol, mechanism))
    await bus.open()
    assert await bus.partition_count(topic) == 1
    await bus.send(topic, 0, [BusMessage(b"a", b"1")])
    assert [record.message.value async for record in bus.peek(topic)] == [b"1"]
    subscription = await bus.subscribe(topic, [topic], on_revoked)
    read: list[bytes] = []
    while not read:
        read += [record.message.value for record in await subscription.read(10, 10)]
    await subscription.close()
    await bus.close()


async def test_wrong_password_is_unreachable_and_the_log_has_the_reason(
    kafka: KafkaService, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = settings(kafka, "SASL_PLAINTEXT", "SCRAM-SHA-512", "guess")
    bus = KafkaBus(wrong)
    with caplog.at_level(logging.WARNING), pytest.raises(BusUnreachable) as caught:
        await bus.partition_count("orders")
    await bus.close()
    assert wrong.servers in str(caught.value)
    assert any("Authentication failed" in message for message in caplog.messages)
    assert "guess" not in f"{caught.value} {caplog.text}"


async def test_certificate_of_an_unknown_authority_is_refused(kafka: KafkaService) -> None:
    address, _ = kafka.secure("SSL")
    bus = KafkaBus(Kafka(address, security_protocol="SSL"))
    with pytest.raises(BusUnreachable):
        await bus.partition_count("orders")
    await bus.close()
