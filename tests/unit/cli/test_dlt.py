"""``onthedot outbox dlt``: dead letters are listed, and their events published again, once."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from onthedot import Reject
from onthedot.events import Event
from tests.support.waits import wait_until
from tests.unit.cli.conftest import Console

TOPIC = "shop.order.events"


class Shop:
    """An app whose agent rejects what the test says, and the console beside it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.app = console.app
        self.rejects = True
        self.runs: list[str] = []

        @self.app.agent("packer", consumes="Shop.Order.Placed")
        async def pack(event: Event) -> None:
            self.runs.append(event.id)
            if self.rejects:
                raise Reject(f"no order {event.payload['id']}")

    def publish(self, *numbers: int) -> None:
        events = [Event("Shop.Order.Placed", {"id": n}, aggregate_id=str(n), id=f"order-{n}") for n in numbers]
        self.app.sync.publish(*events)

    def letters(self, *options: str) -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(self.console.do("outbox", "dlt", "list", "--json", *options))[
            "dead_letters"
        ]
        return found

    def replay(self, *options: str) -> str:
        return self.console.do("outbox", "dlt", "replay", *options).strip()


@pytest.fixture
def shop(console: Console) -> Iterator[Shop]:
    shop = Shop(console)
    with console.app.background():
        shop.publish(1, 2)
        wait_until(lambda: len(shop.letters()) == 2)
        yield shop
    console.app.shutdown()


def test_list_shows_event_agent_and_error(shop: Shop) -> None:
    header, *rows = shop.console.do("outbox", "dlt", "list").splitlines()
    assert header.split() == ["EVENT", "TYPE", "AGENT", "WRITTEN", "ATTEMPTS", "REPLAY", "TOPIC", "ERROR"]
    assert sorted(row.split()[0] for row in rows) == ["order-1", "order-2"]
    (letter,) = shop.letters("--error", "NO ORDER 2")
    assert (letter["event_id"], letter["agent"], letter["topic"]) == ("order-2", "packer", TOPIC)
    assert (letter["error"], letter["attempts"], letter["replay"]) == ("no order 2", 1, 0)
    assert letter["error_type"] == "onthedot.Reject"


def test_list_is_filtered(shop: Shop) -> None:
    assert len(shop.letters(TOPIC)) == 2
    assert shop.letters("other.topic") == []
    assert shop.letters("--agent", "other") == []
    assert len(shop.letters("--agent", "packer", "--since", "1h", "--limit", "1")) == 1
    assert shop.letters("--since", "2999-01-01") == []
    assert shop.letters("--dlt-suffix", "-dlt") == []
    assert (
        shop.console.invoke("outbox", "dlt", "list", "other.topic").stderr
        == "no such dead letter in topics that end in .DLT\n"
    )
    assert "1 more" in shop.console.invoke("outbox", "dlt", "list", "--limit", "1").stderr


def test_replay_runs_the_event_again_and_a_second_one_does_nothing(shop: Shop) -> None:
    shop.rejects = False
    shop.runs.clear()
    assert shop.replay("--id", "order-1", "--dry-run") == "1 dead letter would be replayed"
    assert shop.replay("--id", "order-1") == "1 event is published again"
    wait_until(lambda: shop.runs == ["order-1"])
    again = shop.replay("--all")
    assert again == "1 event is published again; 1 was replayed before: --again repeats that"
    wait_until(lambda: shop.runs == ["order-1", "order-2"])
    assert shop.replay("--all").startswith("0 events are published again; 2 were replayed before")
    assert shop.replay("--id", "order-1", "--again") == "1 event is published again"
    wait_until(lambda: shop.runs == ["order-1", "order-2", "order-1"])


def test_replay_that_fails_again_is_another_dead_letter(shop: Shop) -> None:
    shop.replay("--id", "order-1", "--rate", "50/s")
    wait_until(lambda: len(shop.letters()) == 3)
    own = [letter for letter in shop.letters() if letter["event_id"] == "order-1"]
    assert sorted(str(letter["replay"]) for letter in own) == ["0", "1"]
    result = json.loads(shop.console.do("outbox", "dlt", "replay", "--id", "order-1", "--json"))
    assert result == {"replayed": ["order-1"], "unchanged": ["order-1"]}


def test_replay_without_a_filter_is_refused(shop: Shop) -> None:
    assert "which ones?" in shop.console.invoke("outbox", "dlt", "replay", code=1).stderr
    assert "fast" in shop.console.invoke("outbox", "dlt", "replay", "--all", "--rate", "fast", code=2).stderr


def test_other_bus_than_that_of_the_relay_is_refused(shop: Shop) -> None:
    refused = shop.console.invoke("outbox", "dlt", "list", "--bus", "kafka://127.0.0.1:1", code=3)
    assert "name the same bus by --bus" in refused.stderr


def test_unreachable_bus_is_an_error_in_one_line(console: Console) -> None:
    console.app.sync.publish(Event("Shop.Order.Placed", {"id": 1}, aggregate_id="1"))
    console.app.shutdown()
    failed = console.invoke("outbox", "dlt", "list", "--bus", "kafka://127.0.0.1:1?request_timeout=1", code=1)
    assert "127.0.0.1:1" in failed.stderr
    assert failed.stderr.count("\n") == 1


# -- doctor


def test_doctor_reports_dead_letters_of_the_bus(shop: Shop) -> None:
    found = json.loads(shop.console.invoke("doctor", "--bus", "store", "--json", code=1).stdout)["findings"]
    by_name = {each["what"]: each for each in found}
    assert by_name["bus"]["ok"]
    assert by_name["dead letters"]["text"].startswith("2 events within a week, the newest ")
    assert "of packer: onthedot.Reject: no order" in by_name["dead letters"]["text"]
    assert "outbox dlt replay" in by_name["dead letters"]["remedy"]
    assert "dead letters" not in shop.console.invoke("doctor", code=1).output, "without --bus it reads none"


def test_doctor_reports_a_bus_that_does_not_answer(console: Console) -> None:
    console.app.sync.publish(Event("Shop.Order.Placed", {"id": 1}, aggregate_id="1"))
    console.app.shutdown()
    found = console.invoke("doctor", "--bus", "kafka://127.0.0.1:1?request_timeout=1", code=1).output
    assert "✗  bus" in found
    assert "127.0.0.1:1" in found


def test_doctor_reports_a_bus_without_dead_letters(console: Console) -> None:
    console.app.sync.publish(Event("Shop.Order.Placed", {"id": 1}, aggregate_id="1"))
    console.app.shutdown()
    found = console.do("doctor", "--bus", "store")
    assert "0 within a week" in found
