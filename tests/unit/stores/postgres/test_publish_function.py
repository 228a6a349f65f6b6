"""``SELECT onthedot.publish_v1('…')``: programs without Python publish in their own transactions."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from onthedot.clock.system import SystemClock
from onthedot.events.event_types import VERBS
from onthedot.events.outbox_rows import bucket_of, bus_message
from onthedot.events.topic_names import default_topic
from onthedot.stores.contract import NewEvent
from onthedot.stores.postgres import schema
from tests.support.services.postgres import Service
from tests.support.source_files import ROOT
from tests.unit.stores.postgres.shop import opened

PLACED = {"type": "Shop.Order.Placed", "aggregate_id": "17", "payload": {"id": 17}}


@pytest.fixture(autouse=True, scope="module")
def installed(postgres: Service) -> None:
    schema.install(postgres.url)


def publish(service: Service, app: str, *events: dict[str, Any], **fields: Any) -> tuple[list[str], list[bool]]:
    """The ids, and which of them are new."""
    request = json.dumps({"app": app, "events": events, **fields})
    ((ids, fresh),) = service.ask("SELECT * FROM onthedot.publish_v1(%s)", request)
    return ids, fresh


async def stored(service: Service, app: str) -> list[NewEvent]:
    async with opened(service, app) as store:
        return [each.event for each in await store.find_events({}, 0, 100)]


async def test_what_can_be_derived_may_be_left_out(postgres: Service, named: str) -> None:
    before = SystemClock().now()
    (event_id,), fresh = publish(postgres, named, PLACED)
    assert fresh == [True]
    (event,) = await stored(postgres, named)
    assert (event.id, event.correlation_id, event.causation_id) == (event_id, event_id, None)
    assert (event.type, event.aggregate_type, event.aggregate_id) == ("Shop.Order.Placed", "ShopOrder", "17")
    assert (event.topic, event.key, event.bucket) == (default_topic(event.type), "17", bucket_of("17"))
    assert (event.version, event.retries, event.payload, event.headers) == (1, 0, b'{"id": 17}', b"{}")
    assert abs(event.occurred_at - before) < 60_000


async def test_all_fields_can_be_given(postgres: Service, named: str) -> None:
    at = datetime(2026, 1, 31, 12, 0, 0, 5000, tzinfo=UTC)
    full = PLACED | {
        "id": "e1", "topic": "orders", "key": "k", "version": 3, "aggregate_type": "Order", "retries": 2,
        "correlation_id": "c", "causation_id": "p", "occurred_at": at.isoformat(), "headers": {"h": "é"}, "priority": 7,
    }  # fmt: skip
    assert publish(postgres, named, full, full) == (["e1", "e1"], [True, False])
    (event,) = await stored(postgres, named)
    assert event == NewEvent(
        "e1", "orders", "k", bucket_of("k"), "Shop.Order.Placed", 3, "Order", "17", "c", "p", 2,
        int(at.timestamp() * 1000), b'{"id": 17}', None, '{"h": "é", "ce_priority": "7"}'.encode(),
    )  # fmt: skip


async def test_relay_reads_what_was_published(postgres: Service, named: str) -> None:
    publish(postgres, named, PLACED | {"id": "e1", "priority": 7})
    async with opened(postgres, named) as store:
        (found,) = await store.find_events({}, 0, 10)
    message = bus_message(found, "/shop")
    headers = dict(message.headers)
    assert (message.key, json.loads(message.value)) == (b"17", {"id": 17})
    assert (headers["ce_id"], headers["ce_source"], headers["ce_priority"]) == (b"e1", b"/shop", b"7")


@pytest.mark.parametrize(
    "key", ["17", "", "a", "ключ", "0198f0a2-7b1c-7000-8000-000000000000", "x" * 500, "\U0001f600"]
)
def test_bucket_is_the_one_of_python(postgres: Service, key: str) -> None:
    ((bucket,),) = postgres.ask("SELECT onthedot.bucket_v1(%s)", key)
    assert bucket == bucket_of(key)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"type": None}, "no type"),
        ({"type": "Order.Placed"}, "3 or 4 segments"),
        ({"type": "A.B.C.D.Placed"}, "3 or 4 segments"),
        ({"type": "Shop.order.Placed"}, "PascalCase"),
        ({"type": "Shop.Order.Ship"}, "past tense"),
        ({"aggregate_id": ""}, "no aggregate_id"),
        ({"aggregate_id": None}, "no aggregate_id"),
        ({"key": ""}, "empty key"),
        ({"topic": "no topic"}, "not a name for Kafka"),
    ],
)
def test_wrong_event_is_refused_with_the_reason(postgres: Service, named: str, wrong: Any, words: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=words):
        publish(postgres, named, PLACED, PLACED | wrong)
    assert postgres.ask("SELECT FROM onthedot.app WHERE name = %s", named) == []


@pytest.mark.parametrize("request_text", ["{}", '{"app": "shop"}', '{"app": "shop", "events": {}}', "[]"])
def test_wrong_request_is_refused(postgres: Service, request_text: str) -> None:
    with pytest.raises(psycopg.Error, match=r"publish_v1 takes|json_to_record"):
        postgres.ask("SELECT onthedot.publish_v1(%s)", request_text)


def test_verbs_are_those_of_python_and_the_callers(postgres: Service, named: str) -> None:
    for verb in VERBS:
        assert publish(postgres, named, PLACED | {"type": f"Shop.Order.{verb}"})[1] == [True]
    went = PLACED | {"type": "Shop.Order.Went"}
    assert publish(postgres, named, went, verbs=["Went"])[1] == [True]


def test_event_is_published_with_the_transaction(postgres: Service, named: str) -> None:
    request = json.dumps({"app": named, "events": [PLACED]})
    with psycopg.connect(postgres.url) as connection:
        for end in (connection.rollback, connection.commit):
            connection.execute("SELECT onthedot.publish_v1(%s)", (request,))
            end()
    assert postgres.ask(
        "SELECT count(*) FROM onthedot.event_outbox AS e JOIN onthedot.app AS a ON a.id = e.app WHERE a.name = %s",
        named,
    ) == [(1,)]


def first_column(head: str) -> set[str]:
    """The names in the first column of a table of the reference."""
    page = (ROOT / "docs" / "reference" / "postgres.md").read_text("utf-8")
    rows = page.partition(head)[2].partition("\n\n")[0].splitlines()[2:]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_reference_has_every_column_and_table(postgres: Service) -> None:
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'event_outbox'"
    tables = "SELECT table_name FROM information_schema.tables WHERE table_name ~ '^(event|flow)_'"
    assert first_column("| column | meaning |") == {name for (name,) in postgres.ask(columns)}
    assert first_column("| table | rows | written by |") == {name for (name,) in postgres.ask(tables)}
