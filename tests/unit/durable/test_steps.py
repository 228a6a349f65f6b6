"""Steps: saved under their names, returned by later runs, refused where they could not work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from onthedot import App, Retry, StoreUnavailable, TaskCancelled, TaskFailed, current_task
from onthedot.stores.contract import Note
from tests.unit.durable.stores import on_each_store

pytestmark = on_each_store


@dataclass
class Receipt:
    number: int
    at: datetime


def receipt(number: int) -> Receipt:
    return Receipt(number, datetime(2026, 11, 17, tzinfo=UTC))


async def test_saved_step_is_not_repeated_by_a_retry(app: App) -> None:
    calls: list[str] = []

    async def charge(amount: int) -> Receipt:
        calls.append("charge")
        return receipt(amount)

    def mail(to: str) -> None:
        calls.append(f"mail {to}")

    @app.task(max_retries=1)
    async def order() -> Receipt:
        ctx = current_task()
        paid = await ctx.step("charge", charge, 7)
        await ctx.step("mail", mail, to="ann")
        if ctx.attempt == 1:
            raise Retry(after=0)
        return paid

    async with app.running():
        assert await (await order.enqueue()).result(10) == receipt(7)
    assert calls == ["charge", "mail ann"]


@pytest.mark.parametrize(
    "value",
    [None, 0, "", (1, 2), {1}, {"at": datetime(2026, 1, 1, tzinfo=UTC)}, [1.5, None], b"raw"],
    ids=lambda value: type(value).__name__,
)
async def test_result_comes_back_equal_and_of_the_same_type(app: App, value: object) -> None:
    seen: list[object] = []

    @app.task(max_retries=1)
    async def order() -> None:
        seen.append(await current_task().step("make", lambda: value))
        if current_task().attempt == 1:
            raise Retry(after=0)

    async with app.running():
        await (await order.enqueue()).result(10)
    assert seen == [value, value]
    assert type(seen[1]) is type(value)


async def test_second_use_of_a_name_is_another_step(app: App) -> None:
    calls: list[int] = []

    def double(number: int) -> int:
        calls.append(number)
        return number * 2

    @app.task(max_retries=1)
    async def order() -> list[int]:
        ctx = current_task()
        found = [await ctx.step("double", double, number) for number in range(3)]
        if ctx.attempt == 1:
            raise Retry(after=0)
        return found

    async with app.running():
        assert await (await order.enqueue()).result(10) == [0, 2, 4]
    assert calls == [0, 1, 2]


async def test_step_that_raised_runs_again(app: App) -> None:
    calls: list[str] = []

    def flaky(attempt: int) -> str:
        calls.append("flaky")
        if attempt == 1:
            raise ValueError("not yet")
        return "done"

    @app.task(max_retries=1, backoff=0)
    async def order() -> str:
        return await current_task().step("flaky", flaky, current_task().attempt)

    async with app.running():
        assert await (await order.enqueue()).result(10) == "done"
    assert calls == ["flaky", "flaky"]


async def test_steps_of_a_gather_finish_in_any_order(app: App) -> None:
    calls: list[str] = []
    second_is_saved = asyncio.Event()

    async def slow() -> str:
        calls.append("slow")
        if len(calls) == 2:
            await second_is_saved.wait()
            raise Retry(after=0)
        return "slow"

    async def quick() -> str:
        calls.append("quick")
        return "quick"

    @app.task(max_retries=1)
    async def order() -> list[str]:
        ctx = current_task()

        async def second() -> str:
            found = await ctx.step("quick", quick)
            second_is_saved.set()
            return found

        if ctx.attempt == 1:
            calls.append("first run")
        return await asyncio.gather(ctx.step("slow", slow), second())

    async with app.running():
        assert await (await order.enqueue()).result(10) == ["slow", "quick"]
    assert calls == ["first run", "slow", "quick", "slow"]


async def test_many_tasks_save_their_steps_in_few_writes(app: App) -> None:
    """All notes that gather during one write go with the next."""
    store = app.runtime.store
    writes: list[int] = []
    note = store.note

    async def counted(notes: list[Note]) -> Any:
        writes.append(len(notes))
        return await note(notes)

    store.note = counted  # type: ignore[method-assign, assignment]

    begun = 0
    all_begun = asyncio.Event()

    @app.task
    async def order(number: int) -> int:
        nonlocal begun
        await current_task().step("first", lambda: None)  # reads the journal, at any time
        begun += 1
        if begun == 8:
            writes.clear()
            all_begun.set()
        await all_begun.wait()
        return await current_task().step("make", lambda: number)

    async with app.running():
        handles = await order.enqueue_many([(number,) for number in range(8)])
        assert await asyncio.gather(*(handle.result(10) for handle in handles)) == list(range(8))
    assert sum(writes) == 8
    if not store.traits.synchronous:
        assert len(writes) <= 2


async def test_outage_of_the_store_is_no_error_of_the_step(app: App) -> None:
    store = app.runtime.store
    if store.traits.synchronous:
        pytest.skip("it has no outage")
    note = store.note
    failures = iter([StoreUnavailable("gone"), StoreUnavailable("still gone")])

    async def broken(notes: list[Note]) -> Any:
        error = next(failures, None)
        if error is not None:
            raise error
        return await note(notes)

    store.note = broken  # type: ignore[method-assign, assignment]
    calls: list[str] = []

    @app.task
    async def order() -> int:
        await current_task().step("charge", calls.append, "charge")
        return len(calls)

    async with app.running():
        assert await (await order.enqueue()).result(10) == 1


class Opaque:
    """Nothing can store it."""


@pytest.mark.parametrize("make", [Opaque, partial(str.ljust, "x", 1 << 20)], ids=["opaque", "too large"])
async def test_result_that_cannot_be_saved_fails_the_task_without_a_retry(app: App, make: Callable[[], Any]) -> None:
    calls: list[str] = []

    def charge() -> object:
        calls.append("charge")
        return make()

    @app.task(max_retries=5, backoff=0)
    async def order() -> None:
        await current_task().step("charge", charge)

    async with app.running():
        with pytest.raises(TaskFailed, match=r"step 'charge#1'.*not retried"):
            await (await order.enqueue()).result(10)
    assert calls == ["charge"]


@pytest.mark.parametrize("name", ["", "x" * 201, "a#b", "line\nbreak"])
async def test_bad_name_of_a_step_is_refused(app: App, name: str) -> None:
    @app.task
    async def order() -> str:
        with pytest.raises(ValueError, match="the name of a step"):
            await current_task().step(name, list)
        return "refused"

    async with app.running():
        assert await (await order.enqueue()).result(10) == "refused"


async def test_step_inside_a_step_is_refused(app: App) -> None:
    @app.task
    async def order() -> str:
        ctx = current_task()

        async def outer() -> str:
            with pytest.raises(RuntimeError, match="step 'inner' inside of step 'outer'"):
                await ctx.step("inner", list)
            with pytest.raises(RuntimeError, match=r"ctx.sleep\(\) inside of step 'outer'"):
                await ctx.sleep(1)
            return "refused"

        return await ctx.step("outer", outer)

    async with app.running():
        assert await (await order.enqueue()).result(10) == "refused"


async def test_wait_during_a_step_is_refused(app: App) -> None:
    @app.task
    async def order() -> list[str]:
        ctx = current_task()
        begun = asyncio.Event()
        refused = asyncio.Event()

        async def slow() -> str:
            begun.set()
            await refused.wait()
            return "saved"

        async def wait() -> str:
            await begun.wait()
            with pytest.raises(RuntimeError, match="await the steps first"):
                await ctx.wait_for("approved")
            with pytest.raises(RuntimeError, match="await the steps first"):
                await ctx.sleep(1)
            refused.set()
            return "refused"

        return await asyncio.gather(ctx.step("slow", slow), wait())

    async with app.running():
        assert await (await order.enqueue()).result(10) == ["saved", "refused"]


async def test_thousand_and_first_step_is_refused(app: App) -> None:
    @app.task
    async def order() -> None:
        for number in range(1001):
            await current_task().step("make", lambda number=number: number)

    async with app.running():
        with pytest.raises(TaskFailed, match="step 'make#1001': the task has 1,000 saved steps"):
            await (await order.enqueue()).result(60)


async def test_plain_run_creates_nothing_durable(app: App) -> None:
    runs: list[object] = []

    @app.around
    async def look(task: Any, call: Any) -> object:
        value = await call()
        runs.append(app.runtime.worker.runs[0].durable)  # type: ignore[union-attr]
        return value

    @app.task
    async def plain() -> None:
        current_task().progress(1)

    async with app.running():
        await (await plain.enqueue()).result(10)
    assert runs == [None]


async def test_step_of_a_run_that_lost_its_lease_is_not_saved(app: App) -> None:
    """Another worker has the task by now, and its steps count."""
    store = app.runtime.store
    note = store.note

    async def lost(notes: list[Note]) -> Any:
        await note([])
        return [each.lease for each in notes]

    seen: list[str] = []

    @app.task
    async def order() -> None:
        if not seen:
            store.note = lost  # type: ignore[method-assign, assignment]
        try:
            await current_task().step("charge", list)
        except TaskCancelled as error:
            seen.append(str(error))
            raise
        finally:
            store.note = note  # type: ignore[method-assign]

    async with app.running():
        await (await order.enqueue()).result(10)
    (error,) = seen
    assert "its lease is lost" in error


async def test_class_is_a_function_that_returns_its_objects(app: App) -> None:
    @app.task(max_retries=1)
    async def order() -> Receipt:
        made = await current_task().step("make", Receipt, 7, datetime(2026, 11, 17, tzinfo=UTC))
        if current_task().attempt == 1:
            raise Retry(after=0)
        return made

    async with app.running():
        assert await (await order.enqueue()).result(10) == receipt(7)
