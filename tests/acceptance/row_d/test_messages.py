"""The message queue: payloads and handlers."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from onthedot import ArgumentError, DeclarationError, DuplicateTask
from onthedot.mq import MessageQueue
from tests.acceptance.queues import SHARED, started
from tests.support.waits import every_chance, until, wait_until

pytestmark = pytest.mark.usefixtures("no_thread_left", "no_hidden_trouble")


async def test_payload_keeps_type_and_value(queue: Any) -> None:
    mq = queue(max_workers=1)
    got = []  # in order
    mq.register_handler("any", got.append)
    payloads = [
        None,
        17,
        1.5,
        "ä",
        [1, {"a": None}],
        {"n": 1},
        (1, 2),
        Decimal("1.50"),
        datetime(2026, 1, 1, tzinfo=UTC),
    ]
    async with started(mq):
        for payload in payloads:
            await mq.produce("any", payload)
        await until(lambda: len(got) == len(payloads))
    assert got == payloads
    assert [type(each) for each in got] == [type(each) for each in payloads]


@dataclass
class Order:
    id: int
    lines: list[str]


async def test_annotation_of_the_handler_decides_the_type(queue: Any) -> None:
    mq = queue()
    got = []

    class Shop:
        async def ship(self, order: Order) -> None:
            got.append(order)

    mq.register_handler("orders", Shop().ship)
    with pytest.raises(ArgumentError, match="'payload' cannot be stored"):
        await mq.produce("orders", {"id": 1})
    async with started(mq):
        await mq.produce("orders", Order(1, ["tea"]))
        await until(lambda: got == [Order(1, ["tea"])])


@pytest.mark.parametrize("url", SHARED, indirect=True)
async def test_producer_does_not_need_the_handler(queue: Any) -> None:
    consumer = queue(max_workers=1)
    producer = queue()
    got = []

    @consumer.register_handler("orders")
    def handle(order: dict[str, tuple[int, str]]) -> None:
        got.append(order)

    await producer.produce("orders", {"a": (1, "tea")})
    async with started(consumer):
        await producer.produce("orders", {"b": (2, "cup")})
        await until(lambda: got == [{"a": (1, "tea")}, {"b": (2, "cup")}])


async def test_handler_may_be_a_function_method_or_object_sync_or_async(queue: Any) -> None:
    mq = queue()
    got = []

    class Callable_:
        async def __call__(self, payload: str) -> None:
            got.append(payload)

    @mq.register_handler("decorated")
    def decorated(text: str = "") -> None:
        got.append(text)

    assert decorated("plain") is None, "the decorator returns the function"
    assert got.pop() == "plain"
    mq.register_handler("object", Callable_())
    mq.register_handler("lambda", lambda text: got.append(text))
    mq.register_handler("any", lambda *all_: got.append(*all_))
    async with started(mq):
        for topic in ("decorated", "object", "lambda", "any"):
            await mq.produce(topic, topic)
        await until(lambda: len(got) == 4)
    assert sorted(got) == ["any", "decorated", "lambda", "object"]


def test_bad_handlers_and_topics_are_refused() -> None:
    mq = MessageQueue("memory://")
    with pytest.raises(DeclarationError, match=r"topic 'a': .* must take one argument, the payload"):
        mq.register_handler("a", lambda: None)
    with pytest.raises(DeclarationError, match="must take one argument, the payload: missing a required"):
        mq.register_handler("a", lambda one, two: None)
    with pytest.raises(ValueError, match="topic 'a b' is not a name"):
        mq.register_handler("a b", print)
    mq.register_handler("a", print)
    with pytest.raises(DuplicateTask, match="topic 'a' has a handler already, <built-in function print>"):
        mq.register_handler("a", print)


async def test_max_workers_counts_sync_and_async_handlers_together(queue: Any) -> None:
    mq = queue(max_workers=3, batch_size=2)
    gate = asyncio.Event()
    running = Counter[str]()
    go_on = False

    @mq.register_handler("async")
    async def waits(_: int) -> None:
        running["async"] += 1
        await gate.wait()

    @mq.register_handler("sync")
    def blocks(_: int) -> None:
        running["sync"] += 1
        wait_until(lambda: go_on)

    for n in range(4):
        await mq.produce("async", n)
        await mq.produce("sync", n)
    async with started(mq):
        await until(lambda: running.total() == 3)
        await every_chance()
        assert mq.status["running_count"] == running.total() == 3
        go_on = True
        gate.set()
        await until(lambda: running.total() == 8)
