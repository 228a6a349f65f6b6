"""Signals are kept, numbered and taken in order, from any sender and at any time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onthedot import App, ArgumentError, Signal, StoreFull, TaskFailed, current_task
from onthedot.testing import TestApp
from tests.support.app_stores import AppStore
from tests.support.waits import SOON, until
from tests.unit.durable.stores import on_each_shared_store, on_each_store

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Approval:
    by: str
    at: datetime | None = None


async def waits(*handles: Any) -> None:
    for handle in handles:

        async def is_waiting(handle: Any = handle) -> bool:
            return await handle.state() == "waiting"

        await until(is_waiting)


@on_each_store
async def test_signal_before_the_wait_is_taken_at_once(app: App) -> None:
    @app.task
    async def order() -> Any:
        return await current_task().wait_for("approved")

    async with app.running():
        assert await app.signal("approved", {"by": "ann"})
        assert await (await order.enqueue()).result(10) == {"by": "ann"}


@on_each_store
async def test_takers_of_a_signal_are_the_tasks_that_wait_for_it(app: App) -> None:
    @app.task
    async def order(name: str) -> Any:
        return await current_task().wait_for(name)

    async def takers(name: str, to: str | None = None) -> set[str]:
        found = await app.runtime.portal.run(lambda client: client.operations.signals.takers(name, to))
        return {each.uuid for each in found}

    async with app.running():
        first = await order.enqueue("approved")
        second = await order.enqueue("approved")
        other = await order.enqueue("refused")
        await waits(first, second, other)
        assert await takers("approved") == {first.uuid, second.uuid}
        assert await takers("approved", second.uuid) == {second.uuid}
        assert await takers("approved", other.uuid) == set()
        await second.signal("approved")
        await second.result(10)
        assert await takers("approved") == {first.uuid}
        await first.cancel()
        await other.cancel()


@on_each_store
async def test_signal_reaches_every_task_that_waits(app: App) -> None:
    @app.task
    async def order(number: int) -> Any:
        return [number, await current_task().wait_for("approved")]

    async with app.running():
        handles = [await order.enqueue(number) for number in range(3)]
        await waits(*handles)
        await app.signal("approved", "yes")
        assert [await handle.result(10) for handle in handles] == [[0, "yes"], [1, "yes"], [2, "yes"]]


@on_each_store
async def test_signal_of_a_handle_reaches_one_task(app: App) -> None:
    @app.task
    async def order() -> Any:
        return await current_task().wait_for("approved")

    async with app.running():
        first = await order.enqueue()
        second = await order.enqueue()
        await waits(first, second)
        await first.signal("approved", 1)
        assert await first.result(10) == 1
        assert await second.state() == "waiting"
        await app.ahandle(second.uuid).signal("approved", 2)
        assert await second.result(10) == 2


@on_each_store
async def test_two_waits_take_two_signals_in_order(app: App) -> None:
    """Of the shared name and the own one, the earlier comes first."""

    @app.task
    async def order() -> list[Any]:
        return [await current_task().wait_for("line") for _ in range(4)]

    async with app.running():
        await app.signal("line", 1)
        handle = await order.enqueue()
        await waits(handle)
        await handle.signal("line", 2)
        await app.signal("line", 3)
        await handle.signal("line", 4)
        assert await handle.result(10) == [1, 2, 3, 4]


@on_each_store
async def test_same_id_changes_nothing(app: App) -> None:
    @app.task
    async def order() -> list[Any]:
        ctx = current_task()
        found = [await ctx.wait_for("paid")]
        try:
            found.append(await ctx.wait_for("paid", timeout=0.05))
        except TimeoutError:
            found.append("no second one")
        return found

    async with app.running():
        handle = await order.enqueue()
        assert await handle.signal("paid", 1, id="evt-17")
        assert not await handle.signal("paid", 2, id="evt-17")
        assert await app.signal("paid elsewhere", 2, id="evt-17"), "ids are per name"
        assert await handle.result(10) == [1, "no second one"]


@on_each_store
async def test_wait_any_returns_the_first_signal(app: App) -> None:
    @app.task
    async def order() -> list[Any]:
        ctx = current_task()
        first = await ctx.wait_any("paid", "refused", timeout=60)
        second = await ctx.wait_any("paid", "refused")
        assert isinstance(first, Signal)
        assert first.at.tzinfo is not None
        assert first.at <= second.at
        return [first.name, first.payload, second.name, second.payload]

    async with app.running():
        handle = await order.enqueue()
        await waits(handle)
        before = datetime.now(UTC)
        await app.signal("refused", "no money")
        await handle.signal("paid", 7)
        assert await handle.result(10) == ["refused", "no money", "paid", 7]
        assert datetime.now(UTC) - before < timedelta(seconds=10)


@on_each_store
async def test_cancelled_waiter_leaves_the_signal_to_others(app: App) -> None:
    @app.task
    async def order() -> Any:
        return await current_task().wait_for("approved")

    async with app.running():
        gone = await order.enqueue()
        await waits(gone)
        await gone.cancel()
        await app.signal("approved", "yes")
        assert await (await order.enqueue()).result(10) == "yes"
        assert await gone.state() == "cancelled"


SENDER = """
import sys
from onthedot import App
print(App(sys.argv[1], store=sys.argv[2]).sync.signal("approved", {"by": "ann"}, id="evt-1"))
"""


async def send_from_another_process(app_store: AppStore) -> bytes:
    command = [sys.executable, "-c", SENDER, app_store.name, app_store.url]
    return await asyncio.to_thread(subprocess.check_output, command, timeout=SOON)


@on_each_shared_store
async def test_another_process_signals(app: App, app_store: AppStore) -> None:
    @app.task
    async def order() -> Approval:
        return await current_task().wait_for("approved", type=Approval)

    async with app.running():
        handle = await order.enqueue()
        await waits(handle)
        assert await send_from_another_process(app_store) == b"True\n"
        assert await handle.result(SOON) == Approval("ann")
        assert await send_from_another_process(app_store) == b"False\n", "the id is kept after it was taken"


@on_each_shared_store
async def test_signal_of_another_process_before_the_wait_is_taken_at_once(app: App, app_store: AppStore) -> None:
    """The sender has ended before the task is added."""

    @app.task
    async def order() -> list[str]:
        ctx = current_task()
        first = await ctx.wait_for("approved", timeout=0, type=Approval)
        try:
            return [first.by, await ctx.wait_for("approved", timeout=0)]
        except TimeoutError:
            return [first.by, "no second one"]

    async with app.running():
        printed = [await send_from_another_process(app_store) for _ in range(2)]
        assert printed == [b"True\n", b"False\n"]
        assert await (await order.enqueue()).result(SOON) == ["ann", "no second one"]


@on_each_store
@pytest.mark.parametrize(
    ("sent", "kind", "received"),
    [
        ({"by": "ann"}, Approval, Approval("ann")),
        (Approval("ann", NEW_YEAR), Approval, Approval("ann", NEW_YEAR)),
        ({"by": "ann", "at": NEW_YEAR}, Approval, Approval("ann", NEW_YEAR)),
        (Approval("ann"), Any, {"by": "ann", "at": None}),
        ((1, 2), Any, (1, 2)),
        ([1, 2], list[int], [1, 2]),
        (None, Any, None),
    ],
)  # fmt: skip
async def test_payload_is_read_as_the_type_that_the_task_names(app: App, sent: Any, kind: Any, received: Any) -> None:
    found: list[Any] = []

    @app.task
    async def order() -> None:
        found.append(await current_task().wait_for("approved", type=kind))

    async with app.running():
        await app.signal("approved", sent)
        await (await order.enqueue()).result(10)
    assert found == [received]
    assert type(found[0]) is type(received)


@on_each_store
async def test_payload_of_another_type_is_passed_over(app: App, caplog: pytest.LogCaptureFixture) -> None:
    """A mistake of a sender does not fail the task: the next signal that can be read is taken."""

    @app.task
    async def order() -> list[Any]:
        ctx = current_task()
        first = await ctx.wait_for("approved", type=Approval)
        second = await ctx.wait_for("approved", type=Approval)
        return [first.by, second.by]

    async with app.running():
        for number in range(12):  # more than are read at once
            await app.signal("approved", {"from": number})
        handle = await order.enqueue()
        await waits(handle)
        await handle.signal("approved", {"by": 7})
        await app.signal("approved", Approval("ann"))
        await app.signal("approved", "wrong")
        await app.signal("approved", {"by": "bob"})
        assert await handle.result(10) == ["ann", "bob"]
    text = f"task {handle.uuid} from order goes on waiting: the payload of signal 'approved' cannot be read as "
    lines = [line for line in caplog.messages if line.startswith(text)]
    assert any("Approval: Expected `str`, got `int` - at `$.by`" in line for line in lines)
    assert any("Approval: Object missing required field `by`" in line for line in lines)


def test_payload_that_another_type_reads_is_not_lost() -> None:
    """A signal that was passed over was not taken, so code with another type gets it."""
    app = App("shop")
    kinds: list[type] = [Approval]

    @app.task
    async def order() -> Any:
        return await current_task().wait_for("approved", type=kinds[0], timeout=60)

    with TestApp(app) as test:
        handle = order.delay()
        handle.signal("approved", "yes")
        test.sync.run_until_idle()
        assert handle.state() == "waiting"
        kinds[0] = str
        test.sync.advance(60)
        assert handle.result() == "yes"


def test_taken_payload_that_the_new_type_cannot_read_is_changed_code() -> None:
    app = App("shop")
    kinds: list[type] = [str]

    @app.task(max_retries=3, backoff=0)
    async def order() -> str:
        found = await current_task().wait_for("approved", type=kinds[0])
        await current_task().sleep(10)
        return str(found)

    with TestApp(app) as test:
        handle = order.delay()
        handle.signal("approved", "yes")
        test.sync.run_until_idle()
        kinds[0] = Approval
        test.sync.drain()
        with pytest.raises(TaskFailed, match=r"'approved' cannot be read as .*Approval.*'#wait:approved#1'") as raised:
            handle.result()
        assert (raised.value.error_type, raised.value.attempt) == ("onthedot.StepChanged", 1)
        kinds[0] = str
        handle.retry()
        test.sync.drain()
        assert handle.result() == "yes"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"name": ""}, "the name of a signal has 1 to 200"),
        ({"name": "x" * 201}, "the name of a signal has 1 to 200"),
        ({"name": "a\nb"}, "the name of a signal has 1 to 200"),
        ({"id": ""}, "its id has 1 to 200"),
        ({"keep": 86_399}, "keep must be 24 hours or more"),
        ({"keep": timedelta(hours=23)}, "keep must be 24 hours or more"),
    ],
)
@on_each_store
async def test_bad_signal_is_refused_and_nothing_is_stored(app: App, arguments: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        await app.signal(**{"name": "approved", **arguments})
    with pytest.raises(ValueError, match=problem):
        app.sync.signal(**{"name": "approved", **arguments})
    with pytest.raises(ValueError, match=problem):
        app.handle("some").signal(**{"name": "approved", **arguments})


@pytest.mark.parametrize("payload", [object(), "x" * (1 << 20)], ids=["opaque", "too large"])
@on_each_store
async def test_payload_that_cannot_be_stored_is_refused(app: App, payload: object) -> None:
    with pytest.raises(ArgumentError, match="signal 'approved': the payload"):
        await app.signal("approved", payload)


@pytest.mark.parametrize("names", [(), ("a", "b", "c", "d", "e"), ("a", "")])
async def test_wait_for_too_many_or_bad_names_is_refused(names: tuple[str, ...]) -> None:
    app = App("shop", store="memory://")

    @app.task
    async def order() -> str:
        with pytest.raises(ValueError, match=r"1 to 4 names|1 to 200"):
            await current_task().wait_any(*names)
        return "refused"

    async with app.running():
        assert await (await order.enqueue()).result(10) == "refused"


@on_each_store
async def test_thousand_and_first_signal_of_a_name_is_refused(app: App) -> None:
    async with app:
        await asyncio.gather(*(app.signal("line", number) for number in range(1000)))
        with pytest.raises(StoreFull):
            await app.signal("line", 1000)


def test_signal_is_kept_for_its_time() -> None:
    app = App("shop")

    @app.task
    async def order() -> Any:
        return await current_task().wait_for("approved", timeout=0)

    with TestApp(app) as test:
        app.sync.signal("approved", "yes", keep=timedelta(days=2))
        test.sync.advance(days=1, hours=23)
        first = order.delay()
        test.sync.advance(hours=2)
        second = order.delay()
        test.sync.run_until_idle()
        assert first.result() == "yes"
        assert "TimeoutError" in str(second.exception())
