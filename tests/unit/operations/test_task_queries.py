"""Find tasks by arguments and metadata, page by page, with a bounded number of reads."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from onthedot import App, ArgumentError
from onthedot.clock.manual import ManualClock
from onthedot.operations import task_queries
from onthedot.operations.argument_filter import matches
from tests.support.waits import every_chance

ORDER = {
    "customer": "acme",
    "order": {"id": 17, "paid": True, "price": 2.5, "note": None, "items": [{"sku": "a"}, {"sku": "b"}]},
    "day": date(2026, 11, 16),
    "at": datetime(2026, 11, 16, 9, tzinfo=UTC),
    "total": Decimal("2.50"),
    "trace.id": "t-1",
    "pair": (1, 2),
    "text": "17",
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("customer", "acme"), ("order.id", 17), ("order.id", "17"), ("order.paid", True), ("order.paid", "true"),
        ("order.price", "2.5"), ("order.price", "2.50"), ("order.note", None), ("order.note", "null"),
        ("order.items.1.sku", "b"), ("order.items.0", {"sku": "a"}), ("order.items", '[{"sku":"a"},{"sku":"b"}]'),
        ("day", "2026-11-16"), ("at", "2026-11-16T09:00:00+00:00"), ("total", "2.50"), ("trace.id", "t-1"),
        ("pair", "[1, 2]"), ("pair", [1, 2]), ("pair.1", 2), ("text", "17"),
    ],
)  # fmt: skip
def test_conditions_match_values_and_their_texts(path: str, value: object) -> None:
    assert matches({path: value}, ORDER)
    assert matches({path: value}, {}, ORDER)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("customer", "acm"), ("customer", "Acme"), ("order.id", 1), ("order.id", "17x"), ("order.paid", 1),
        ("order.paid", "True"), ("order.id.x", "17"), ("order.items.2.sku", "b"), ("order.items.x", "a"),
        ("nope", None), ("nope", "null"), ("text", 17), ("order.note", "None"), ("", "acme"),
        ("order.", "17"), ("order.id", '"17"'),
    ],
)  # fmt: skip
def test_conditions_do_not_match_other_values(path: str, value: object) -> None:
    assert not matches({path: value}, ORDER)


@pytest.mark.parametrize("where", ["customer=acme", [("a", 1)], {1: 2}])
async def test_where_must_be_a_dict_of_paths(app: App, where: Any) -> None:
    with pytest.raises(ArgumentError, match="is not a dict of paths and values"):
        await app.find(where=where)


async def test_tasks_are_found_by_arguments_and_metadata(app: App) -> None:
    send = app.named("send")
    acme = [(await send.options(metadata={"team": "a"}).enqueue(customer="acme", order={"id": n})).uuid for n in (1, 2)]
    other = (await send.enqueue(customer="globex", order={"id": 1})).uuid

    async def found(**where: Any) -> list[str]:
        return [info.uuid for info in await app.find(**where)]

    assert await found(where={"customer": "acme"}) == acme[::-1]
    assert await found(where={"order.id": "1"}) == [other, acme[0]]
    assert await found(where={"order.id": 1, "customer": "acme"}) == [acme[0]]
    assert await found(where={"team": "a"}, source="send", state="ready") == acme
    assert await found(where={"team": "b"}) == []
    assert len(await found(where={})) == 3


async def test_short_page_has_a_cursor_that_finds_the_rest(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call reads a bounded number of tasks: here twice ten of a hundred."""
    monkeypatch.setattr(task_queries, "MAX_READS", 2)
    monkeypatch.setattr(task_queries, "BATCH", 10)
    send = app.named("send")
    handles = await app.enqueue_many([send.s(number=number, even=number % 2 == 0) for number in range(100)])
    looked = 0
    cursor = None
    seen = list[str]()
    while True:
        page = await app.find(where={"number": "17"}, cursor=cursor)
        looked = looked + 1
        cursor = page.cursor
        seen = seen + [info.uuid for info in page]
        if cursor is None:
            break
    assert (seen, looked) == ([handles[17].uuid], 5)
    cursor = None
    pages = list[list[str]]()
    while True:
        page = await app.find(where={"even": True}, limit=3, cursor=cursor)
        pages.append([info.uuid for info in page])
        cursor = page.cursor
        if cursor is None:
            break
    assert [uuid for page in pages for uuid in page] == [handle.uuid for handle in handles[::-1]][1::2]
    assert {len(page) for page in pages[:-1]} == {3}


async def test_found_task_has_the_errors_of_its_attempts(app: App, clock: ManualClock) -> None:
    @app.task(max_retries=2, backoff=[1])
    async def flaky() -> None:
        raise OSError("down")

    async with app.running():
        handle = await flaky.enqueue()
        while not await handle.done():
            await every_chance()
            clock.advance(1000)
    (info,) = await app.find(state="failed")
    assert info == await app.get(handle.uuid)
    assert [error.attempt for error in info.errors] == [1, 2]
