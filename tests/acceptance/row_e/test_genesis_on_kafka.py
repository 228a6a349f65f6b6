"""The example on Kafka and Postgres: a flow of Prefect end to end, and what a plain client reads."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from examples.genesis.servers import flow_command
from tests.acceptance.row_e.event_systems import CREATED, REQUESTED
from tests.acceptance.row_e.flow_programs import PATIENCE
from tests.acceptance.row_e.test_genesis import BATCH, Genesis, genesis
from tests.acceptance.row_e.test_prefect_examples import states
from tests.support.services import kafka_protocol
from tests.support.services.kafka import KafkaService
from tests.support.services.postgres import Service
from tests.support.services.prefect import PrefectServer
from tests.support.services.prefect_environment import settings
from tests.support.source_files import ROOT
from tests.support.waits import SOON

pytestmark = [pytest.mark.once, pytest.mark.timeout(300)]

TOPICS = ("genesis.requests", "genesis.results")
FLOW = "genesis_detail_batch_flow"


class Running(NamedTuple):
    """The example, and where it keeps tasks and events."""

    example: Genesis
    store: str


@pytest.fixture
def running(
    kafka: KafkaService, postgres: Service, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Running]:
    """A test that uses Prefect has asked for its server before."""
    before = kafka_protocol.topics(kafka.address)
    bus = f"kafka://{kafka.address}?create_topics=true"
    prefect = request.getfixturevalue("prefect").api if "prefect" in request.fixturenames else ""
    try:
        with (
            postgres.database() as store,
            genesis(tmp_path, "--store", store, "--bus", bus, prefect=prefect) as example,
        ):
            yield Running(example, store)
    finally:
        kafka.delete_others(before)


def test_flow_of_prefect_is_resumed_by_answers_that_come_over_kafka(
    prefect: PrefectServer, running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefect → outbox → Kafka → agents → callback service → resume, with the store on Postgres."""
    monkeypatch.setenv("ONTHEDOT_STORE", running.store)
    command = flow_command(prefect.environment.python, prefect.api)
    home = tmp_path / "prefect"
    home.mkdir()
    ran = subprocess.run(
        command, shell=True, cwd=ROOT, env=settings(home, ONTHEDOT_STORE=""),
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    names = ran.stdout.splitlines()
    assert len(names) == 50, ran.stdout
    found = states(prefect, FLOW)
    assert found[-3:] == ["PAUSED", "RUNNING", "COMPLETED"]
    with psycopg.connect(running.store) as db:
        events = "SELECT topic, count(*), count(position) FROM onthedot.event_outbox WHERE status = 'sent' GROUP BY 1"
        rows = db.execute(f"{events} ORDER BY 1").fetchall()
        handles = db.execute("SELECT status, target LIKE 'prefect:%' FROM onthedot.flow_resume_handles").fetchall()
        arrivals = db.execute("SELECT count(*) FROM onthedot.flow_resume_events").fetchall()
    parts = rows[0][1]
    assert parts > 1
    assert rows == [(topic, parts, 0) for topic in TOPICS], "no row has a position in the store as bus"
    assert handles == [("resumed", True)]
    assert arrivals == [(parts,)]


def test_plain_client_reads_every_event_of_a_request(running: Running, kafka: KafkaService) -> None:
    """API → request → result: one correlation id, and each result names the request that has caused it."""
    answer = running.example.post("/sessions/s-1/detail-batches", BATCH, key="cmd-1")[1]
    assert answer["command_id"] == "cmd-1"
    assert len(running.example.made(answer["events_url"])) == BATCH["count"]
    records = asyncio.run(read_all(kafka.address))
    events = [parsed(record) for record in records]
    assert {event.get_extension("correlationid") for event in events} == {"cmd-1"}
    assert {event.get_source() for event in events} == {"/genesis"}
    requests = {event.get_id(): event for event in events if event.get_type() == REQUESTED}
    results = [event for event in events if event.get_type() == CREATED]
    assert len(requests) + len(results) == len(events)
    assert sorted(event.get_extension("causationid") for event in results) == sorted(requests)
    for result in results:
        request = requests[result.get_extension("causationid")]
        assert result.get_subject() == request.get_subject() == "s-1"
        assert result.get_extension("partitionkey") == request.get_extension("partitionkey")
        assert result.get_data()["task_id"] == request.get_data()["task_id"]
        assert len(result.get_data()["items"]) == request.get_data()["count"]


def parsed(record: ConsumerRecord) -> CloudEvent:
    """By the SDK of CloudEvents."""
    headers = dict(record.headers)
    event = from_binary(KafkaMessage(headers, record.key, record.value), JSONFormat())
    assert isinstance(event, CloudEvent)
    assert event.get_extension("partitionkey") == record.key.decode()
    return event


async def read_all(address: str) -> list[ConsumerRecord]:
    """All records of the topics, by a client that knows nothing of onthedot."""
    consumer = AIOKafkaConsumer(*TOPICS, bootstrap_servers=address, auto_offset_reset="earliest")
    await consumer.start()
    try:
        ends = await consumer.end_offsets(consumer.assignment())
        expected = sum(ends.values())
        records: list[ConsumerRecord] = []
        async with asyncio.timeout(SOON):
            while len(records) < expected:
                page = await consumer.getmany(timeout_ms=200)
                records += [record for some in page.values() for record in some]
    finally:
        await consumer.stop()
    return records
