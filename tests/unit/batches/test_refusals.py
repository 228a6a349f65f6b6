"""Bad input is refused before anything is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from onthedot import App, ArgumentError, BatchPolicy, DeclarationError, Dedup, DuplicateTask, SizeTable
from tests.unit.batches.name_tasks import NameTasks


@pytest.fixture
def app() -> App:
    return App("shop", store="memory://")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"count": 0}, "count must be a whole number from 1, not 0"),
        ({"count": True}, "count must be a whole number from 1"),
        ({}, "give count=… or items=…, one of them"),
        ({"count": 5, "items": [1]}, "give count=… or items=…, one of them"),
        ({"count": 5, "size": 2}, "size=… goes with items=…"),
        ({"items": [1], "size": 1}, "it has no parameter 'items'"),
        ({"count": 5, "type": 3}, "type must be a string"),
        ({"count": 5, "type": "item", "args": {"stile": "old"}}, "did you mean 'style'"),
        ({"count": 5, "type": "item", "args": {"style": 3}}, "is of type int where str is declared"),
        ({"count": 5, "type": "item", "priority": 11}, "priority must be 1 to 10"),
        ({"count": 5, "type": "item", "deadline": -1}, "deadline"),
        ({"count": 5, "type": "item", "style": "old"}, "no argument 'style'; arguments of the task go into args="),
        ({"count": 5, "type": "item", "key": "a\0"}, "key has a NUL"),
        ({"count": 100_000, "type": "item"}, "at most 1,000 parts"),
        ({"count": 5, "type": "item", "metadata": {"batch": "b"}}, "metadata has 'batch'"),
    ],
)
async def test_batch_that_cannot_work_is_refused(app: App, arguments: dict[str, Any], problem: str) -> None:
    tasks = NameTasks(app)
    with pytest.raises((ArgumentError, ValueError), match=problem):
        await app.batch(tasks.names, **arguments)
    with pytest.raises((ArgumentError, ValueError), match=problem):
        app.sync.batch(tasks.names, **arguments)
    assert list(await app.find()) == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"count": 5}, "it has no parameter 'count'"),
        ({"items": []}, "items is empty"),
        ({"items": "abc"}, "items must be a list"),
        ({"items": {"a": 1}}, "items must be a list"),
        ({"items": 5}, "items must be a list"),
        ({"items": [1], "size": 0}, "size must be a whole number from 1"),
        ({"items": [1], "args": {"items": [2]}}, "'items' in args; write app.batch"),
        ({"items": [1], "size": 1, "existing": ["x"]}, r"existing=… needs names: BatchPolicy\(dedup="),
        ({"items": [1], "size": 1, "type": "x"}, "it has no parameter 'type'"),
    ],
)
async def test_list_that_cannot_be_split_is_refused(app: App, arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises((ArgumentError, ValueError), match=problem):
        await app.batch(NameTasks(app).double, **arguments)


async def test_unknown_type_is_refused_before_anything_is_stored(app: App) -> None:
    @app.task(batch=BatchPolicy(split=SizeTable({"item": 16})))
    async def names(type: str, count: int) -> list[str]:  # noqa: A002 - as the parameter is called
        return []

    with pytest.raises(ValueError, match="no size of parts for type 'spell'; there are: item"):
        await app.batch(names, count=5, type="spell")


async def test_task_without_a_policy_is_refused(app: App) -> None:
    @app.task
    async def plain(count: int) -> list[int]:
        return []

    with pytest.raises(ArgumentError, match=r"declare it with @app.task\(batch=BatchPolicy"):
        await app.batch(plain, count=5)
    with pytest.raises(ArgumentError, match="it takes a task of this app"):
        await app.batch(NameTasks(App("other", store="memory://")).names, count=5, type="item")
    with pytest.raises(ArgumentError, match="it takes a task of this app"):
        await app.batch(print, count=5)  # type: ignore[arg-type]


async def test_fallback_that_cannot_take_the_arguments_is_refused(app: App) -> None:
    tasks = NameTasks(app)

    @app.task
    async def without_type(count: int) -> list[str]:
        return []

    @app.task
    async def needs_more(type: str, count: int, model: str) -> list[str]:  # noqa: A002 - as the parameter is called
        return []

    other = NameTasks(App("other", store="memory://"))
    for fallback, problem in (
        (without_type, "fallback without_type has no parameter 'type'"),
        (needs_more, "fallback needs_more needs 'model', which is not given"),
        (other.one_big_call, "fallback must be a task of this app"),
        (print, "fallback must be a task of this app"),
        (app.named("elsewhere"), "the code of its fallback elsewhere is not known here"),
    ):
        with pytest.raises(ArgumentError, match=problem):
            await app.batch(tasks.names, count=5, type="item", fallback=fallback)  # type: ignore[arg-type]
    assert list(await app.find()) == []


def test_declarations_that_cannot_work(app: App) -> None:
    with pytest.raises(DeclarationError, match="two parts of a batch may have equal arguments"):

        @app.task(batch=BatchPolicy(), unique=True)
        async def unique(items: list[int]) -> list[int]:
            return items

    with pytest.raises(DeclarationError, match="a part of a batch returns a list, and this is a stream"):

        @app.task(batch=BatchPolicy())  # type: ignore[arg-type]
        async def stream(items: list[int]) -> AsyncIterator[int]:
            yield 1

    with pytest.raises(DeclarationError, match=r"batch must be a BatchPolicy\(…\)"):

        @app.task(batch=Dedup())  # type: ignore[call-overload]
        async def wrong(items: list[int]) -> list[int]:
            return items

    @app.task(name="double", batch=BatchPolicy())
    async def double(items: list[int]) -> list[int]:
        return items

    with pytest.raises(DuplicateTask):

        @app.task(name="double:batch")
        async def other() -> None: ...


async def test_result_that_is_no_list_fails_its_part(app: App) -> None:
    @app.task(batch=BatchPolicy())
    async def total(items: list[int]) -> int:
        return sum(items)

    async with app.running():
        batch = await app.batch(total, items=[1, 2], size=1)  # type: ignore[arg-type]
        parts = [entry.data async for entry in batch.stream() if entry.kind == "part"]
    assert [part.error.message for part in parts] == ["total returned int, and a part returns a list"] * 2


async def test_part_with_too_large_items_fails_alone(app: App) -> None:
    @app.task(batch=BatchPolicy())
    async def texts(items: list[int]) -> list[str]:
        return ["x" * item for item in items]

    async with app.running():
        batch = await app.batch(texts, items=[10, 2 << 20, 20], size=1)
        result = await batch.all(20)
        (failed,) = [part async for part in batch.parts() if part.error]
    assert sorted(map(len, result.items)) == [10, 20]
    assert (result.short_by, result.failed_parts) == (1, 1)
    assert failed.error is not None
    assert "make parts smaller" in failed.error.message


async def test_error_in_validate_fails_the_batch_and_a_retry_goes_on(app: App) -> None:
    is_broken = True

    def check(item: int) -> bool:
        if is_broken:
            raise KeyError("no such rule")
        return item > 1

    @app.task(batch=BatchPolicy(validate=check))
    async def same(items: list[int]) -> list[int]:
        return items

    app.runtime.sources.by_name["same:batch"].options = _without_retries(app, "same:batch")
    async with app.running():
        batch = await app.batch(same, items=[1, 2], size=1)
        with pytest.raises(Exception, match="no such rule"):
            await batch.all(20)
        is_broken = False
        await app.retry(batch.id)
        assert (await batch.all(20)).items == [2]


def _without_retries(app: App, source: str) -> Any:
    from dataclasses import replace

    return replace(app.runtime.sources.by_name[source].options, max_retries=0)
