"""Settings of events and of Kafka: ranges, contradictions, URLs, passwords."""

from __future__ import annotations

import copy
import pickle
import ssl
from dataclasses import FrozenInstanceError, replace
from datetime import timedelta
from typing import Any

import pytest

from onthedot import BadEvent, DeclarationError
from onthedot.events import Event, Events, Kafka
from onthedot.events.settings import as_events

CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
LOGIN: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_username": "g", "sasl_password": "s3cret"}


def test_defaults_of_kafka_are_frozen() -> None:
    kafka = Kafka("h1:9092")
    fields = {name: getattr(kafka, name) for name in Kafka.__dataclass_fields__}
    assert fields == {
        "servers": "h1:9092", "security_protocol": "PLAINTEXT", "sasl_mechanism": None, "sasl_username": None,
        "sasl_password": None, "ssl_context": None, "client_id": None, "compression": None, "create_topics": False,
        "partitions": 8, "replication": -1, "request_timeout": 10, "session_timeout": 10,
    }  # fmt: skip
    with pytest.raises(FrozenInstanceError):
        kafka.partitions = 9  # type: ignore[misc]
    assert replace(kafka, partitions=9).partitions == 9
    assert pickle.loads(pickle.dumps(kafka)) == copy.deepcopy(kafka) == kafka


def test_defaults_of_events_are_frozen() -> None:
    events = Events()
    assert {name: getattr(events, name) for name in Events.__dataclass_fields__} == {
        "bus": None, "topics": {}, "results": (), "outbox": None, "source": None,
        "verbs": (
            "Sent", "Paid", "Built", "Made", "Found", "Lost", "Sold", "Bought", "Begun", "Withdrawn", "Written",
        ),
        "dlt_suffix": ".DLT", "keep_sent": timedelta(days=7), "keep_arrivals": 3600, "max_event": 900_000, "poll": 1.0,
        "prefect": None,
    }  # fmt: skip
    assert (events.keep_sent_ms, events.keep_arrivals_ms) == (604_800_000, 3_600_000)
    with pytest.raises(FrozenInstanceError):
        events.poll = 2  # type: ignore[misc]
    assert replace(events, poll=2).poll == 2
    assert pickle.loads(pickle.dumps(events)) == copy.deepcopy(events) == events


KAFKA_RANGES: dict[str, tuple[list[Any], list[Any]]] = {  # field: valid values, invalid values
    "servers": (
        ["h", "h1:9092,h2:9092", "127.0.0.1:1", "[::1]:9092,b-1.x.y:65535"],
        ["", "h:", "h1,", "kafka://h", "h:0", "h:65536", "a b", "h\n", None, 1],
    ),
    "security_protocol": (["PLAINTEXT", "SSL"], ["ssl", "", None]),
    "ssl_context": ([None], [True, "x"]),
    "client_id": (["a", None], ["", 1]),
    "compression": (["gzip", "snappy", "lz4", "zstd", None], ["zip", ""]),
    "create_topics": ([True, False], [1, "yes", None]),
    "partitions": ([1, 10_000], [0, 10_001, True, "8", 1.0]),
    "replication": ([-1, 1, 100], [0, -2, 101]),
    "request_timeout": ([0.1, 600], [0, 601, "10", True, timedelta(seconds=1)]),
    "session_timeout": ([1, 1800], [0.9, 1801]),
    "sasl_mechanism": ([None], ["plain", ""]),
    "sasl_username": ([None], ["", 1]),
    "sasl_password": ([None], ["", 1]),
}  # fmt: skip

EVENTS_RANGES: dict[str, tuple[list[Any], list[Any]]] = {
    "bus": ([None, "store", "kafka://h:9092", Kafka("h")], [1, "redis://h", "", {"servers": "h"}, "kafka://h?x=1"]),
    "topics": (
        [{}, {"Shop.Order.*": "orders", "Shop.Order.Placed": "a.b-c_1"}, {"Shop.Order.Line.*ed": "x"}],
        [
            {"Shop.*": "x"}, {"Shop.Order.*": "a b"}, {"Shop.Order.*": ""}, {"Shop.Order.*": "x" * 247}, [1], None,
            {"Shop.Order.Place": "x"}, {"Shop.*.Placed": "x"},
        ],
    ),
    "results": (
        [(), ["Shop.Order.Placed"], ("Shop.Order.*",)],
        ["Shop.Order.Placed", ["Shop"], ["Shop.Order.Place"], None, [1]],
    ),
    "outbox": (["postgresql://h/db", "sqlite:///x.db", None], ["redis://h", "memory://", "", 1]),
    "source": (["/genesis", "https://x/y", None], ["", "a b", 1]),
    "verbs": ([(), ["Split"]], ["Split", ["split"], [""], [1], None]),
    "dlt_suffix": ([".DLT", "-dlt"], ["", "x" * 51, "a b", None]),
    "keep_sent": (
        [0, 1.5, timedelta(days=1)],
        [-1, True, "1", "PT5S", timedelta(days=-1), timedelta(days=366), 31_536_001, None],
    ),
    "keep_arrivals": ([0, 1.5, timedelta(days=1)], [-1, True, "1", "PT5S", timedelta(days=-1), float("nan")]),
    "max_event": ([1000, 100_000_000], [999, 100_000_001, 1e6]),
    "poll": ([0.01, 3600], [0, 3601, "1"]),
    "prefect": (["http://h:4200/api", "https://h", None], ["h:4200", "", 1]),
}  # fmt: skip


@pytest.mark.parametrize("name", KAFKA_RANGES)
def test_each_setting_of_kafka_accepts_its_range(name: str) -> None:
    assert sorted(KAFKA_RANGES) == sorted(Kafka.__dataclass_fields__)
    for right in KAFKA_RANGES[name][0]:
        assert getattr(Kafka(**({"servers": "h"} | {name: right})), name) == right
    for wrong in KAFKA_RANGES[name][1]:
        with pytest.raises(DeclarationError, match=rf"^Kafka: 1 wrong\n  {name}=.*: "):
            Kafka(**({"servers": "h"} | {name: wrong}))


@pytest.mark.parametrize("name", EVENTS_RANGES)
def test_each_setting_of_events_accepts_its_range(name: str) -> None:
    assert sorted(EVENTS_RANGES) == sorted(Events.__dataclass_fields__)
    for right in EVENTS_RANGES[name][0]:
        kept = getattr(Events(**{name: right}), name)
        if not isinstance(right, str) or name != "bus":
            assert kept == (tuple(right) if isinstance(right, list) else right)
    for wrong in EVENTS_RANGES[name][1]:
        with pytest.raises(DeclarationError, match=rf"^Events: 1 wrong\n  {name}\b.*: "):
            Events(**{name: wrong})


def test_one_error_lists_every_wrong_setting_of_events() -> None:
    with pytest.raises(DeclarationError) as caught:
        Events(pol=1, max_event="big", topics={"Shop.Order": "a b"}, verbs=["split"], bus="kafka://h?partition=0")  # type: ignore[call-arg, arg-type]
    assert str(caught.value).splitlines() == [
        "Events: 6 wrong",
        "  pol: there is no such field; did you mean poll?",
        "  max_event='big': must be a whole number from 1000 to 100000000",
        "  bus: Kafka: 1 wrong",
        "    partition: there is no such field; did you mean partitions?",
        "  verbs: 'split' is not PascalCase",
        (
            "  topics['Shop.Order']: pattern of event types 'Shop.Order' has 2 segments, not 3 or 4; write "
            "Domain.Aggregate.Action or Domain.Aggregate.Sub.Action, as in Shop.Order.Placed"
        ),
        "  topics['Shop.Order']: topic 'a b' is not a name for Kafka: 1 to 249 of A-Z a-z 0-9 . _ -",
    ]


def test_one_error_lists_every_wrong_setting_of_kafka() -> None:
    with pytest.raises(DeclarationError) as caught:
        Kafka("h:70000", sasl_user="g", sasl_password="s3cret", ssl_context=CONTEXT, acks="1", bus=Kafka)  # type: ignore[call-arg]
    assert str(caught.value).splitlines() == [
        "Kafka: 6 wrong",
        "  sasl_user: there is no such field; did you mean sasl_username?",
        "  acks: there is no such field",
        "  bus: there is no such field",
        "  servers='h:70000': 70000 is not a port; a port is a number from 1 to 65535",
        "  sasl_password: needs security_protocol SASL_SSL or SASL_PLAINTEXT, which is PLAINTEXT",
        "  ssl_context: needs security_protocol SSL or SASL_SSL, which is PLAINTEXT",
    ]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"security_protocol": "SASL_SSL"}, "security_protocol='SASL_SSL': needs sasl_username and sasl_password"),
        ({"security_protocol": "SASL_SSL", "sasl_username": "g"}, "needs sasl_password"),
        ({"sasl_username": "g"}, "sasl_username: needs security_protocol SASL_SSL"),
        ({"security_protocol": "SSL", "sasl_mechanism": "PLAIN"}, "sasl_mechanism: needs security_protocol SASL_SSL"),
        ({**LOGIN, "security_protocol": "SASL_PLAINTEXT", "ssl_context": CONTEXT}, "ssl_context: needs"),
    ],
)  # fmt: skip
def test_contradicting_settings_of_kafka_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        Kafka("h", **given)


def test_login_is_plain_unless_a_mechanism_is_given() -> None:
    kafka = Kafka("h", **LOGIN)
    assert (kafka.uses_sasl, kafka.uses_ssl, kafka.sasl_mechanism) == (True, True, "PLAIN")
    assert Kafka("h", **LOGIN, sasl_mechanism="SCRAM-SHA-512").sasl_mechanism == "SCRAM-SHA-512"
    assert (Kafka("h").uses_sasl, Kafka("h", security_protocol="SSL", ssl_context=CONTEXT).uses_ssl) == (False, True)


def test_passwords_are_never_shown() -> None:
    kafka = Kafka("h", **LOGIN)
    url = "kafka://g:s3cret@h:9092?security_protocol=SASL_SSL"
    shown = [
        repr(kafka),
        repr(Events(bus=kafka)),
        repr(Events(bus=url)),
        repr(Events(outbox="postgresql://u:s3cret@h/d")),
    ]
    wrong: list[dict[str, Any]] = [
        {"bus": url + "&x=1"}, {"bus": "kafka://g:s3cret@h:9092/topic"}, {"bus": "kafka://g:s3c/ret@h"},
        {"bus": "amqp://g:s3cret@h"}, {"bus": "kafka://g:s3cret@[h"}, {"outbox": "redis://:s3cret@h"}, {"prefect": "ftp://u:s3cret@h"},
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises(DeclarationError) as refused:
            Events(**given)
        shown.append(str(refused.value))
    with pytest.raises(DeclarationError) as refused:
        Kafka("h", sasl_password=("s3cret",))  # type: ignore[arg-type]
    shown.append(str(refused.value))
    assert [text for text in shown if "s3cret" in text or "s3c" in text] == []


def test_url_has_all_settings_as_options() -> None:
    kafka = Kafka.from_url(
        "kafka://g:s3%2Fcret@h1:9092,[::1]:9093/?security_protocol=SASL_SSL&sasl_mechanism=SCRAM-SHA-256&client_id=a%20b"
        "&compression=zstd&create_topics=1&partitions=3&replication=2&request_timeout=2.5&session_timeout=6"
    )
    assert kafka == Kafka(
        "h1:9092,[::1]:9093", security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-256", sasl_username="g",
        sasl_password="s3/cret", client_id="a b", compression="zstd", create_topics=True, partitions=3, replication=2,
        request_timeout=2.5, session_timeout=6,
    )  # fmt: skip
    assert Kafka.from_url("kafka://h") == Kafka("h")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("kafka://h?partition=3", "partition: there is no such field; did you mean partitions?"),
        ("kafka://h?partitions=x", "partitions='x': must be a whole number from 1 to 10000"),
        ("kafka://h?create_topics=maybe", "create_topics='maybe': must be True or False"),
        ("kafka://h?ssl_context=x", "ssl_context cannot be an option of a URL"),
        ("kafka://h?client_id=", "client_id='': must be a text that is not empty"),
        ("kafka://", "servers='': must be hosts with ports"),
        ("kafka://h/topic", "a URL of Kafka has no path"),
        ("kafka:/h", "is not a Kafka URL; such a URL looks like kafka://host1:9092,host2:9092"),
        ("h:9092", "is not a Kafka URL"),
        ("kafka://[h", "is not a URL"),
    ],
)
def test_url_that_is_wrong_is_refused_with_the_reason(url: str, problem: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        Kafka.from_url(url)
    assert problem in str(refused.value)


def test_bus_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONTHEDOT_BUS", raising=False)
    assert Events().kafka() is None
    monkeypatch.setenv("ONTHEDOT_BUS", "kafka://h:9092")
    assert Events().kafka() == Kafka("h:9092")
    assert Events(bus="store").kafka() is None
    assert Events(bus=Kafka("other")).kafka() == Kafka("other")
    monkeypatch.setenv("ONTHEDOT_BUS", "redis://h")
    with pytest.raises(DeclarationError, match="is not a Kafka URL"):
        Events().kafka()


def test_app_takes_settings_kafka_or_a_url() -> None:
    events = Events(poll=2)
    assert as_events(events) is events
    assert as_events(None) == Events()
    assert as_events("kafka://h") == as_events(Kafka("h")) == Events(bus=Kafka("h"))
    assert as_events("store").bus == "store"
    with pytest.raises(DeclarationError, match=r"events=5 is of type int; pass Events\(…\)"):
        as_events(5)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="Events: 1 wrong\n  bus: "):
        as_events("h:9092")


def test_settings_keep_their_values_when_the_caller_changes_its_own() -> None:
    topics = {"Shop.Order.*": "orders"}
    verbs = ["Split"]
    events = Events(topics=topics, verbs=verbs)
    topics.clear()
    verbs.clear()
    assert (events.topics, events.verbs) == ({"Shop.Order.*": "orders"}, ("Split",))


def test_source_is_the_name_of_the_app_unless_it_is_given() -> None:
    assert Events().source_of("shop") == "/shop"
    assert Events(source="/genesis").source_of("shop") == "/genesis"


def test_event_is_checked_before_it_is_published() -> None:
    events = Events(verbs=("Split",))
    events.check(Event("Shop.Order.Split", {}, aggregate_id="1"))
    with pytest.raises(BadEvent, match="its action 'Sent' is not in the past tense"):
        events.check(Event("Shop.Order.Sent", {}, aggregate_id="1"))
    foreign = {"id": "e1", "type": "Shop.Order.Placed", "aggregate_id": "1", "occurred_at": "2026-01-31T12:00:00Z"}
    with pytest.raises(BadEvent, match="header 'ce_x' of an event is reserved"):
        events.check(Event.from_dict(foreign | {"headers": {"ce_x": "1"}}))
    with pytest.raises(BadEvent, match="has 2 segments"):
        events.check(Event.from_dict(foreign | {"type": "Order.Placed"}))
    with pytest.raises(TypeError, match="is not an Event, but of type dict"):
        events.check({})  # type: ignore[arg-type]
