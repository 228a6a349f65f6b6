"""``onthedot doctor --bus`` on Kafka: missing topics, replicas, idle groups, copies that run again. Also `drain`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from onthedot import App
from onthedot.cli import main
from onthedot.cli.kafka_check import MAX_LAG, check_kafka
from onthedot.events import Event, Events
from onthedot.events.kafka_state import KafkaGroupState, KafkaState, KafkaTopicState
from onthedot.operations.health import Check
from tests.support.services.kafka import KafkaService, new_name
from tests.support.services.ports import free_port
from tests.support.waits import SOON, until

DAY = 86_400_000
RIGHT = KafkaTopicState("orders", 8, replicas=3, in_sync=3, min_in_sync=2, retention_ms=7 * DAY)
LETTERS = KafkaTopicState("orders.DLT", 8, replicas=3, in_sync=3, min_in_sync=2, retention_ms=7 * DAY)
READ = KafkaGroupState("shop.packer", 2, {"orders": 12})


def check(
    *topics: KafkaTopicState, group: KafkaGroupState = READ, brokers: int = 3, keep: Mapping[str, int] | None = None
) -> list[Check]:
    return check_kafka(KafkaState(brokers, topics, [group]), "shop", ".DLT", keep or {"packer": 8 * DAY})


def test_right_topics_and_groups_are_three_lines() -> None:
    found = check(RIGHT, LETTERS)
    assert [each.ok for each in found] == [True] * 3
    assert [each.text for each in found] == [
        "2 topics with 16 partitions on 3 brokers",
        "shop.packer: 2 members, 12 records behind",
        "packer knows them for 8 days, orders has them for 7 days",
    ]


def changed(**fields: Any) -> KafkaTopicState:
    values = {name: getattr(RIGHT, name) for name in RIGHT.__struct_fields__}
    return KafkaTopicState(**{**values, **fields})


UNKNOWN = "UnknownTopicOrPartitionError"


@pytest.mark.parametrize(
    ("topic", "text", "remedy"),
    [
        (KafkaTopicState("stock", error=UNKNOWN), "stock does not exist; its events wait", "--create --topic stock"),
        (
            KafkaTopicState("orders.DLT", error=UNKNOWN),
            "orders.DLT does not exist; dead letters of orders wait in the outbox",
            "--create --topic orders.DLT --partitions 8; or let Kafka(create_topics=True)",
        ),
        (
            KafkaTopicState("stock", error="TopicAuthorizationFailedError"),
            "stock cannot be seen: TopicAuthorizationFailedError",
            "allow this user to describe, read and write it",
        ),
        (changed(name="stock", without_leader=2), "stock: 2 partitions of 8 without a leader", "start the brokers"),
        (changed(name="stock", in_sync=1), "stock: 1 in-sync replicas, and min.insync.replicas is 2", "start the"),
        (changed(name="stock", min_in_sync=1), "stock: min.insync.replicas is 1 of 3", "min.insync.replicas=2"),
        (changed(name="stock", min_in_sync=3), "without one broker nothing can be sent", "min.insync.replicas=2"),
        (changed(name="stock", replicas=1, in_sync=1, min_in_sync=1), "one replica on 3 brokers", "add replicas"),
    ],
)
def test_problem_of_a_topic_has_a_remedy(topic: KafkaTopicState, text: str, remedy: str) -> None:
    problems = [each for each in check(RIGHT, topic) if not each.ok]
    assert len(problems) == 1
    assert text in problems[0].text
    assert remedy in problems[0].remedy


def test_one_broker_needs_one_replica() -> None:
    topic = changed(replicas=1, in_sync=1, min_in_sync=1)
    assert all(each.ok for each in check(topic, brokers=1))


@pytest.mark.parametrize(
    ("group", "text", "remedy"),
    [
        (
            KafkaGroupState("shop.packer", 0, {"orders": 1}),
            "1 record behind in orders, and nobody reads",
            "agent packer",
        ),
        (KafkaGroupState("shop.callback", 0, {"orders": 1}), "nobody reads them", "the callback service"),
        (KafkaGroupState("shop.packer", 1, {"orders": MAX_LAG + 1}), "10,001 records behind", "more workers"),
    ],
)
def test_group_that_is_behind_is_a_problem(group: KafkaGroupState, text: str, remedy: str) -> None:
    (problem,) = [each for each in check(RIGHT, group=group) if not each.ok]
    assert problem.what == "group"
    assert text in problem.text
    assert remedy in problem.remedy


@pytest.mark.parametrize(("retention", "shown"), [(30 * DAY, "30 days"), (-1, "ever"), (8 * DAY + DAY // 2, "204 h")])
def test_topic_that_outlasts_the_kept_events_is_a_problem(retention: int, shown: str) -> None:
    (problem,) = [each for each in check(changed(retention_ms=retention)) if not each.ok]
    assert problem.text == (
        f"packer keeps events for 8 days after their end, and orders for {shown}: a copy that comes between runs again"
    )
    assert "keep=" in problem.remedy
    assert "retention.ms of orders" in problem.remedy


def test_settings_that_the_user_may_not_read_are_no_problem() -> None:
    assert all(each.ok for each in check(changed(min_in_sync=None, retention_ms=None)))


# -- on a real Kafka


def doctor(store: str, bus: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["doctor", "--store", store, "--bus", bus], terminal_width=400)
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.once
def test_doctor_reads_topics_and_groups_of_the_app(kafka: KafkaService, tmp_path: Path) -> None:
    topic = kafka.topic(3, {"retention.ms": str(30 * DAY)})
    store = f"sqlite:///{tmp_path}/shop.db"
    bus = f"kafka://{kafka.address}"
    name = new_name()
    app = App(name, store=store, events=Events(bus=bus, topics={"Shop.Order.*": topic}), stop_timeout=1)
    seen: list[str] = []

    @app.agent("packer", consumes="Shop.Order.Placed")
    async def pack(event: Event[Any]) -> None:
        seen.append(event.id)

    async def handle_one_and_leave_two() -> None:
        async with app.running():
            await app.publish(Event("Shop.Order.Placed", {}, aggregate_id="1"))
            await until(lambda: len(seen) == 1)
            (subscription,) = [each for each in app.runtime.components.all if each.name == "agent packer"]

            async def is_committed() -> bool:
                return not sum((await subscription.lag()).values())  # type: ignore[attr-defined]

            await until(is_committed)
        app.agents.unregister("packer")
        async with app.running():
            await app.publish(*(Event("Shop.Order.Placed", {}, aggregate_id=str(number)) for number in (2, 3)))

            async def is_sent() -> bool:
                return (await app.operations.outbox.status()).pending == 0

            await until(is_sent)

    asyncio.run(handle_one_and_leave_two())
    code, output = doctor(store, bus)
    assert code == 1
    assert f"✗ topic {topic}.DLT does not exist; dead letters of {topic} wait in the outbox" in output
    assert f"--create --topic {topic}.DLT --partitions 3" in output
    assert f"✗ group {name}.packer is 2 records behind in {topic}, and nobody reads them" in output
    assert f"packer keeps events for 8 days after their end, and {topic} for 30 days" in output
    kafka.topic(3, name=f"{topic}.DLT")
    assert "does not exist" not in doctor(store, bus)[1]


def test_doctor_reports_a_kafka_that_does_not_answer(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/shop.db"
    app = App("shop", store=store)
    app.sync.publish(Event("Shop.Order.Placed", {}, aggregate_id="1"))
    app.shutdown()
    code, output = doctor(store, f"kafka://127.0.0.1:{free_port()}?request_timeout=1")
    assert code == 1
    assert "✗ bus" in output
    assert "start it, or name the right one by --bus" in output


@pytest.mark.once
async def test_agent_is_drained_with_its_lag_on_kafka(kafka: KafkaService, tmp_path: Path) -> None:
    """Also before its group has committed an offset."""
    topic = kafka.topic(3)
    store = f"sqlite:///{tmp_path}/shop.db"
    name = new_name()
    bus = f"kafka://{kafka.address}"
    app = App(name, store=store, events=Events(bus=bus, topics={"Shop.Order.*": topic}), stop_timeout=1)
    has_begun = asyncio.Event()
    may_end = asyncio.Event()
    seen: list[str] = []

    @app.agent("packer", consumes="Shop.Order.Placed")
    async def pack(event: Event[Any]) -> None:
        has_begun.set()
        await may_end.wait()
        seen.append(event.aggregate_id)

    def drain(timeout: str) -> Result:
        command = ["source", "drain", "agent.packer", "--outbox", "--store", store, "-n", name]
        return CliRunner().invoke(main, [*command, "--bus", bus, "--timeout", timeout])

    async with app.running():
        await app.publish(*(Event("Shop.Order.Placed", {}, aggregate_id=str(number)) for number in range(5)))
        async with asyncio.timeout(SOON):
            await has_begun.wait()
        late = await asyncio.to_thread(drain, "1s")
        assert late.exit_code == 124, late.output
        assert "not handled after 1 s; it is not frozen" in late.stderr
        may_end.set()
        done = await asyncio.to_thread(drain, "60s")
        assert done.exit_code == 0, done.output
        assert sorted(seen) == ["0", "1", "2", "3", "4"]
        assert await app.operations.freeze("agent.packer"), "it was frozen"
