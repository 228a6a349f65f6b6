"""``ctx.step_in``: the effect of a step and its saved result are in one transaction of the user's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onthedot import App, Retry, TaskFailed, current_task


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "shop.db", check_same_thread=False)) as db:
        db.execute("CREATE TABLE sale (number INTEGER)")
        db.commit()
        yield db


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App("shop", store=f"sqlite:///{tmp_path}/shop.db")


def sell(db: sqlite3.Connection, number: int) -> int:
    db.execute("INSERT INTO sale VALUES (?)", (number,))
    return number


def sales(db: sqlite3.Connection) -> list[int]:
    return [number for (number,) in db.execute("SELECT number FROM sale")]


async def test_committed_step_is_not_repeated(app: App, db: sqlite3.Connection) -> None:
    @app.task(max_retries=1)
    async def order() -> int:
        ctx = current_task()
        with db:
            number = await ctx.step_in(db, "sell", sell, db, 17)
        if ctx.attempt == 1:
            raise Retry(after=0)
        return number

    async with app.running():
        assert await (await order.enqueue()).result(10) == 17
    assert sales(db) == [17]


async def test_rolled_back_step_runs_again(app: App, db: sqlite3.Connection) -> None:
    @app.task(max_retries=1, backoff=0)
    async def order() -> int:
        ctx = current_task()
        with db:
            number = await ctx.step_in(db, "sell", sell, db, 17)
            if ctx.attempt == 1:
                raise ValueError("rolls back")
        return number

    async with app.running():
        assert await (await order.enqueue()).result(10) == 17
    assert sales(db) == [17]


def test_sync_task_saves_a_step_in_its_transaction(app: App, db: sqlite3.Connection) -> None:
    @app.task(max_retries=1)
    def order() -> int:
        ctx = current_task()
        with db:
            number = ctx.sync.step_in(db, "sell", sell, db, 17)
        if ctx.attempt == 1:
            raise Retry(after=0)
        return number

    with app.background():
        assert order.delay().result(10) == 17
    assert sales(db) == [17]


def test_store_without_transactions_refuses_before_the_step_runs() -> None:
    app = App("shop", store="memory://")
    calls: list[int] = []

    @app.task
    async def order() -> None:
        await current_task().step_in(object(), "sell", calls.append, 17)

    with app.background(), pytest.raises(TaskFailed, match=r"ctx.step_in\(\).*sqlite:///"):
        order.delay().result(10)
    assert calls == []


def test_step_in_without_a_connection_is_refused(app: App) -> None:
    @app.task
    async def order() -> None:
        await current_task().step_in(None, "sell", list)

    with app.background(), pytest.raises(TaskFailed, match="takes your connection first"):
        order.delay().result(10)
