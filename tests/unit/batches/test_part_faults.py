"""Parts that hang, and code of the policy that raises."""

from __future__ import annotations

import asyncio

import pytest

from onthedot import App, BatchPolicy, DeclarationError, SizeTable
from onthedot.batches.dedup import Selector
from onthedot.batches.policy import Dedup
from onthedot.model.value_errors import SettingError
from tests.support.app_stores import AppStore
from tests.support.waits import SOON


async def test_deadline_is_kept_while_parts_hold_all_slots(flow_store: AppStore) -> None:
    app = App(flow_store.name, store=flow_store.url, stop_timeout=0, concurrency=2)
    gate = asyncio.Event()

    @app.task(batch=BatchPolicy(), max_retries=0)
    async def slow(items: list[int]) -> list[int]:
        if items[0]:
            await gate.wait()
        return items

    async with app.running():
        batch = await app.batch(slow, items=[0, 1, 2, 3], size=1, deadline=1)
        assert (await batch.first(SOON)).items == [0]
        result = await batch.all(SOON)
        assert not gate.is_set()
        assert (result.items, result.short_by, result.failed_parts) == ([0], 3, 3)


async def test_parts_that_were_held_back_are_missing_at_the_deadline(app: App) -> None:
    gate = asyncio.Event()

    @app.task(batch=BatchPolicy(at_once=1), max_retries=0)
    async def slow(items: list[int]) -> list[int]:
        if items[0]:
            await gate.wait()
        return items

    async with app.running():
        batch = await app.batch(slow, items=list(range(10)), size=2, deadline=1)
        result = await batch.all(SOON)
        assert (result.items, result.short_by, result.failed_parts) == ([0, 1], 8, 4)
        progress = await batch.progress()
        assert (progress.done, progress.total) == (5, 5)


async def test_item_that_validate_cannot_judge_costs_itself_only(app: App, caplog: pytest.LogCaptureFixture) -> None:
    def check(item: dict[str, int]) -> bool:
        return item["number"] >= 0

    @app.task(batch=BatchPolicy(split=SizeTable({}, other=2), validate=check, top_up=0))
    async def made(count: int) -> list[dict[str, int]]:
        return [{"number": 1}, {}]

    async with app.running():
        result = await (await app.batch(made, count=2)).all(SOON)
    assert (result.items, result.refused) == ([{"number": 1}], {"invalid": 1})
    assert "validate raised KeyError: 'number'; such items are refused as invalid" in caplog.text


def test_comparisons_inside_one_part_are_counted() -> None:
    """They decide whether a part is selected beside the event loop."""
    selector = Selector(BatchPolicy(dedup=Dedup(other=0.9)), "", None, print)
    assert selector.comparisons(["x"] * 800) >= 800 * 799 // 2 - 800


def test_functions_of_a_policy_are_plain() -> None:
    async def check(item: object) -> bool:
        return False

    with pytest.raises(SettingError, match=r"BatchPolicy\(validate\) must be a plain function"):
        BatchPolicy(validate=check)  # type: ignore[arg-type]


def test_batch_task_has_named_parameters_only() -> None:
    app = App("shop", store="memory://")
    with pytest.raises(DeclarationError, match=r"named parameters only; \*\*rest: "):

        @app.task(batch=BatchPolicy())
        async def names(items: list[int], **rest: str) -> list[int]:
            return items


async def test_key_means_the_same_request_with_the_same_size_in_any_order(app: App) -> None:
    @app.task(batch=BatchPolicy(split=SizeTable({}, other=5), dedup=Dedup()))
    async def names(count: int) -> list[str]:
        return [f"{number}" * 3 for number in range(count)]

    @app.task(batch=BatchPolicy())
    async def same(items: list[int]) -> list[int]:
        return items

    async with app:
        first = await app.batch(names, count=2, existing=["a", "b"], key="one")
        again = await app.batch(names, count=2, existing=["b", "a"], key="one")
        assert (again.id, again.added) == (first.id, False)
        await app.batch(same, items=[1, 2], size=1, key="two")
        with pytest.raises(TypeError, match="which has other arguments"):
            await app.batch(same, items=[1, 2], size=2, key="two")


async def test_batch_survives_as_many_crashes_as_its_task(app: App) -> None:
    @app.task(batch=BatchPolicy(), max_crashes=50)
    async def same(items: list[int]) -> list[int]:
        return items

    async with app:
        batch = await app.batch(same, items=[1])
        (record,) = await app.runtime.store.get([batch.id])
    assert record is not None
    assert record.policy.max_crashes == 50
