"""``onthedot outbox``."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from click.testing import CliRunner

from onthedot.cli import main
from onthedot.client.client import StoreClient
from onthedot.events import Event
from onthedot.stores.capabilities import Outbox
from tests.support.waits import wait_until
from tests.unit.cli.conftest import Console, Shop

TOPIC = "shop.order.events"


def order(number: int) -> Event[dict[str, int]]:
    return Event("Shop.Order.Placed", {"id": number}, aggregate_id=str(number), id=f"order-{number}")


@pytest.fixture
def published(console: Console) -> Iterator[Console]:
    """A file with one failed and two pending events."""
    console.app.sync.publish(order(1))

    async def refuse(client: StoreClient) -> None:
        store = client.store
        assert isinstance(store, Outbox)
        await store.relay("r", (), {1: "too large"}, None)

    console.app.runtime.portal.run_sync(refuse)
    console.app.sync.publish(order(1), order(2), order(3))
    yield console
    console.app.shutdown()


def test_status_and_list(published: Console) -> None:
    status = published.do("outbox", "status")
    header, row, _, advice, *_ = status.splitlines()
    assert header.split() == ["TOPIC", "PENDING", "OLDEST", "SENT/MIN", "FAILED", "BLOCKED"]
    assert row.split()[:2] == [TOPIC, "2"]
    assert row.split()[-4:] == ["1", "1", "too", "large"]
    assert advice == "no relay is alive: onthedot worker APP or onthedot outbox relay starts one"
    details = json.loads(published.do("outbox", "status", "--json"))["outbox"]
    assert details["topics"][0]["failed"] == 1
    listed = json.loads(published.do("outbox", "list", "--status", "failed", "--json"))["events"]
    assert [(each["id"], each["error"]) for each in listed] == [("order-1", "too large")]
    page = published.invoke("outbox", "list", "--limit", "2")
    assert [line.split()[1] for line in page.stdout.splitlines()[1:]] == ["order-1", "order-2"]
    assert page.stderr.startswith("there may be more: --after ")
    assert published.invoke("outbox", "list", "--topic", "other").stderr == "no such event\n"


def test_list_of_an_outbox_without_events_says_so(console: Console) -> None:
    @console.app.task
    def send() -> None: ...

    send.delay()
    assert console.invoke("outbox", "list").stderr == "there are no events\n"
    console.app.shutdown()


def test_retry_and_discard_take_parts_of_ids(published: Console) -> None:
    assert published.do("outbox", "retry", "er-1") == "1 event is sent again\n"
    again = published.invoke("outbox", "retry", "er-1", code=1)
    assert again.stdout.startswith("0 events are sent again; 1 id is of no failed event")


def test_discard_keeps_the_reason(published: Console) -> None:
    assert published.do("outbox", "discard", "order-1", "--reason", "sent by hand") == "1 event is discarded\n"
    assert "sent by hand" in published.do("outbox", "list", "--status", "discarded")


def test_pause_and_resume(published: Console) -> None:
    paused = published.do("outbox", "pause", TOPIC, "--reason", "deploy")
    assert paused == f"paused {TOPIC}; onthedot outbox resume {TOPIC} ends it\n"
    assert published.do("outbox", "pause", TOPIC) == f"{TOPIC} was paused already\n"
    assert published.do("outbox", "pause", "--reason", "all") == "paused the outbox; onthedot outbox resume ends it\n"
    status = published.do("outbox", "status")
    assert status.startswith("paused since")
    assert published.do("outbox", "resume") == "resumed the outbox\n"
    assert published.do("outbox", "resume") == "the outbox was not paused\n"
    assert json.loads(published.do("outbox", "resume", TOPIC, "--json")) == {"resumed": TOPIC, "before": True}
    assert "@outbox" not in published.do("source", "list")


def test_purge_marks_events_that_another_program_has_sent(published: Console) -> None:
    refused = published.invoke("outbox", "purge", code=2)
    assert "--sent-by-others" in refused.stderr
    purge = ("outbox", "purge", "--sent-by-others")
    assert published.do(*purge) == "marked 0 events as sent, deleted 0 rows\n"
    assert json.loads(published.do(*purge, "--older-than", "0s", "--json")) == {"marked": 2, "deleted": 0}
    assert published.do(*purge, "--keep-sent", "0s") == "marked 0 events as sent, deleted 2 rows\n"
    assert [line.split()[1] for line in published.do("outbox", "list").splitlines()[1:]] == ["order-1"]


def test_redis_has_no_outbox() -> None:
    result = CliRunner().invoke(main, ["outbox", "status", "--store", "redis://127.0.0.1:1", "-n", "shop"])
    assert result.exit_code == 1
    assert "Events(outbox=…)" in result.stderr


def test_relay_process_sends_and_stops(shop: Shop) -> None:
    shop.app.sync.publish(order(1), order(2))
    relay = shop.start("outbox", "relay", "--store", "sqlite:///shop.db", "--log-format", "json")
    relay.until("relay ready · shop · sqlite:///shop.db · to the store · polls every 1 s")
    wait_until(lambda: [info.status for info in shop.app.sync.operations.outbox.events()] == ["sent", "sent"])
    relay.until("Relay started")
    assert shop.json("outbox", "status")["outbox"]["relays"][0]["buckets"] == list(range(16))
    assert shop.json("worker", "list")["workers"] == []
    other = shop.start("outbox", "relay", "--store", "sqlite:///shop.db", "--bus", "kafka://127.0.0.1:1")
    assert other.ended() != 0
    assert "name the same bus by --bus" in other.text
    relay.tell(signal.SIGTERM)
    assert relay.ended(within=5) == 0
    assert shop.json("outbox", "status")["outbox"]["relays"] == []


@pytest.mark.parametrize(("options", "poll"), [((), "0.25"), (("--poll", "0.5"), "0.5")])
def test_settings_come_from_the_app_unless_an_option_is_given(shop: Shop, options: Sequence[str], poll: str) -> None:
    (shop.folder / "own.py").write_text(
        "from onthedot import App\nfrom onthedot.events import Events\n"
        "app = App('shop', store='sqlite:///shop.db', events=Events(poll=0.25, dlt_suffix='-dlt'))\n"
    )
    shop.app.sync.publish(order(1))
    relay = shop.start("outbox", "relay", "-A", "own.py", *options)
    relay.until(f" · polls every {poll} s")
    relay.tell(signal.SIGTERM)
    assert relay.ended(within=5) == 0
    code, _, err = shop.run("outbox", "dlt", "list", "-A", "own.py")
    assert (code, err) == (0, "no such dead letter in topics that end in -dlt\n")


def test_first_process_of_a_worker_relays_and_its_successor_takes_over(shop: Shop) -> None:
    worker = shop.worker("--processes", "3")

    def relays() -> list[int]:
        return [each.pid for each in shop.app.sync.operations.outbox.status().relays]

    wait_until(lambda: len(relays()) == 1)
    (first,) = relays()
    assert first in worker.children()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: relays() not in ([], [first]))
    shop.app.sync.publish(order(1))
    wait_until(lambda: shop.app.sync.operations.outbox.events()[0].status == "sent")
    assert len(shop.json("worker", "list")["workers"]) == 3


def test_worker_without_a_relay(shop: Shop) -> None:
    worker = shop.worker("--without", "relay,agents")
    shop.app.sync.publish(order(1))
    assert shop.result(shop.add("greet", name="ann")) == "hello ann"
    assert shop.app.sync.operations.outbox.status().relays == ()
    worker.tell(signal.SIGTERM)
    assert worker.ended() == 0
    wrong = shop.run("worker", "app.py", "--without", "relais")
    assert wrong[0] == 2
    assert "'relais' is not one of relay, agents, callback" in wrong[2]


def test_burst_sends_what_its_tasks_publish(shop: Shop) -> None:
    code = """
from onthedot import App, current_task
from onthedot.events import Event
app = App("shop", store="sqlite:///shop.db")
@app.task
async def place(number: int) -> None:
    current_task().publish(Event("Shop.Order.Placed", {"id": number}, aggregate_id=str(number)))
"""
    (shop.folder / "app.py").write_text(code)
    for number in range(20):
        shop.add("place", number=number)
    worker = shop.start("worker", "app.py", "--burst")
    assert worker.ended(30) == 0
    assert {info.status for info in shop.app.sync.operations.outbox.events()} == {"sent"}


def test_burst_lets_agents_handle_the_events_of_agents(shop: Shop) -> None:
    code = """
from onthedot import App, current_task
from onthedot.events import Event
app = App("shop", store="sqlite:///shop.db")
STEPS = ["Placed", "Packed", "Weighed", "Labelled", "Shipped"]
@app.task
async def place(number: int) -> None:
    current_task().publish(Event("Shop.Order.Placed", {"id": number}, aggregate_id=str(number)))
def add_agent(done: str, following: str) -> None:
    @app.agent(f"after_{done.lower()}", consumes=(f"Shop.Order.{done}",))
    async def pass_on(event: Event[dict[str, int]]) -> Event:
        return event.reply(f"Shop.Order.{following}", event.payload)
for done, following in zip(STEPS, STEPS[1:]):
    add_agent(done, following)
"""
    (shop.folder / "app.py").write_text(code)
    for number in range(5):
        shop.add("place", number=number)
    worker = shop.start("worker", "app.py", "--burst")
    assert worker.ended(60) == 0
    events = shop.app.sync.operations.outbox.events(limit=100)
    assert {info.status for info in events} == {"sent"}
    steps = ["Placed", "Packed", "Weighed", "Labelled", "Shipped"]
    assert Counter(info.type for info in events) == {f"Shop.Order.{step}": 5 for step in steps}
