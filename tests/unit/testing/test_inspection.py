"""assert_added, refute_added, tasks and failed, and their messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from unittest.mock import ANY

import pytest

from onthedot import (
    App,
    ArgumentError,
    BaseTaskConsumer,
    Task,
    TaskState,
    testing,
)
from onthedot.testing import TestApp
from tests.unit.testing.steps import START, none


@dataclass
class Order:
    number: int
    at: datetime


@pytest.fixture
def shop(app: App) -> SimpleNamespace:
    @app.task
    async def send(to: str, body: str = "hello", times: int = 1) -> None:
        if to == "eve":
            raise ValueError("no such user")

    @app.task(aliases=("bill_order",))
    async def bill(order: Order, **notes: str) -> None: ...

    return SimpleNamespace(send=send, bill=bill)


async def test_assert_added_finds_tasks_by_arguments(app: App, test: TestApp, shop: SimpleNamespace) -> None:
    await shop.send.enqueue("ann")
    last = await shop.send.options(after=60).enqueue("ann", "bye", times=3)
    assert test.assert_added(shop.send).uuid == last.uuid
    assert test.assert_added("send", to="ann", body="bye").state is TaskState.SCHEDULED
    test.assert_added(shop.send, body="hello", times=1)
    test.assert_added(shop.send, {"times": 3}, to=ANY, times=1)
    test.assert_added(shop.send, to="ann", times=2)
    test.refute_added(shop.send, to="bob")
    test.refute_added(shop.bill)


async def test_arguments_are_compared_as_the_function_gets_them(test: TestApp, shop: SimpleNamespace) -> None:
    order = Order(1, START)
    await shop.bill.enqueue(order, colour="red", size="xl")
    info = test.assert_added(shop.bill, order=order, size="xl")
    assert info.args == {"order": order, "colour": "red", "size": "xl"}
    test.assert_added("bill_order", colour="red")
    test.refute_added(shop.bill, size="s")
    test.refute_added(shop.bill, order=Order(2, START))


async def test_failed_assertion_shows_the_tasks_there_are(test: TestApp, shop: SimpleNamespace) -> None:
    await shop.send.enqueue("bob", body="x" * 1000)
    await shop.send.enqueue("eve")
    await test.advance(1.5)
    await shop.send.options(after=86_400).enqueue("dan")
    await shop.bill.enqueue(Order(1, START))
    with pytest.raises(AssertionError) as caught:
        test.assert_added(shop.send, to="ann", body="hello")
    assert str(caught.value) == (
        "send(to='ann', body='hello') was not added; at 2026-01-01 00:00:01.500 there is of send:\n"
        f"  send(to='bob', body='{'x' * 149}…{'x' * 39}') succeeded\n"
        "  send(to='eve') failed: ValueError: no such user\n"
        "  send(to='dan') scheduled for 2026-01-02 00:00:01.500\n"
        "others: 1 bill"
    )


async def test_failed_assertion_names_task_count_and_arguments(test: TestApp, shop: SimpleNamespace) -> None:
    with pytest.raises(AssertionError, match=r"^send\(\) was not added; there is no send$"):
        test.assert_added(shop.send)
    await shop.send.enqueue_many([{"to": f"user {n}"} for n in range(30)])
    with pytest.raises(AssertionError, match=r"send\(\) was added 30 times, not 1;") as caught:
        test.assert_added(shop.send, times=1)
    assert "and 10 older" in str(caught.value)
    with pytest.raises(AssertionError, match=r"send\(to='user 3'\) was added; at"):
        test.refute_added(shop.send, to="user 3")


async def test_assertion_with_wrong_arguments_is_refused(app: App, test: TestApp, shop: SimpleNamespace) -> None:
    for request in (test.assert_added, test.refute_added):
        with pytest.raises(ArgumentError, match=r"send\(\) has no parameter too; it has to, body, times"):
            request(shop.send, too="ann")
        with pytest.raises(TypeError, match="pass a task function"):
            request(print)
        with pytest.raises(ValueError, match="another app than 'shop'"):
            request(App("other", store="memory://").task(none))


async def test_tasks_are_found_by_name_and_by_consumer(app: App, test: TestApp) -> None:
    done = []

    class Email(BaseTaskConsumer):
        name = "email"

        async def consume(self, task: Task) -> None:
            done.append(task.args)

    email = Email()
    app.register(email)
    await app.named("elsewhere").enqueue(number=1)
    await app.named("email").enqueue(to="ann")
    test.assert_added("elsewhere", number=1)
    test.assert_added(app.named("elsewhere"))
    test.assert_added(email, to="ann")
    await test.run_until_idle()
    assert done == [{"to": "ann"}]
    assert [info.source for info in test.failed()] == ["elsewhere"]


async def test_tasks_and_failed_return_task_infos(app: App, test: TestApp, shop: SimpleNamespace) -> None:
    await shop.send.enqueue("ann")
    await shop.bill.enqueue(Order(1, START))
    await shop.send.enqueue("eve")
    assert [info.source for info in test.tasks()] == ["send", "bill", "send"]
    assert [info.args["to"] for info in test.tasks(shop.send)] == ["ann", "eve"]
    assert test.tasks(shop.send, state="succeeded") == []
    await test.run_until_idle()
    assert [info.args["to"] for info in test.tasks(shop.send, state="succeeded")] == ["ann"]
    with pytest.raises(ValueError, match="sleeping"):
        test.tasks(state="sleeping")


async def test_test_app_uses_the_codec(app: App, test: TestApp, shop: SimpleNamespace) -> None:
    with pytest.raises(ArgumentError, match=r"\$.to is of type int"):
        await shop.send.enqueue(5)


def test_pytest_does_not_collect_the_class_test_app() -> None:
    assert TestApp.__test__ is False


def test_public_names_of_testing_are_frozen() -> None:
    assert testing.__all__ == ["ManualClock", "TestApp"]
