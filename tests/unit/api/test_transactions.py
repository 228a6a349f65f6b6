"""``options(connection=…)`` and ``ctx.complete(connection=…)``: your data and your task, both or neither."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onthedot import App, ArgumentError, StoreRefused, TaskCancelled, TaskNotFound, current_task
from onthedot.model.context import current_run
from tests.support.waits import SOON, wait_until


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App[None]]:
    app: App[None] = App("shop", store=f"sqlite:///{tmp_path}/shop.db")
    with app.background():
        with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
            db.execute("CREATE TABLE sale (number INTEGER)")
            db.commit()
        yield app


@pytest.fixture
def db(app: App[None], tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        yield db


def sales(db: sqlite3.Connection) -> int:
    (number,) = db.execute("SELECT count(*) FROM sale").fetchone()
    return int(number)


def test_task_is_visible_with_the_commit(app: App[None], db: sqlite3.Connection) -> None:
    @app.task
    async def receipt(number: int) -> str:
        return f"receipt {number}"

    db.execute("INSERT INTO sale VALUES (1)")
    gone = receipt.options(connection=db).delay(1)
    db.rollback()
    with pytest.raises(TaskNotFound):
        gone.result(timeout=SOON)
    with db:
        db.execute("INSERT INTO sale VALUES (2)")
        one = receipt.options(connection=db).delay(2)
        many = receipt.options(connection=db).delay_many([{"number": 3}, {"number": 4}])
    assert [handle.result(timeout=SOON) for handle in (one, *many)] == ["receipt 2", "receipt 3", "receipt 4"]
    assert sales(db) == 1


def test_first_add_of_an_app_may_join_a_transaction(app: App[None], db: sqlite3.Connection, tmp_path: Path) -> None:
    @app.task
    async def receipt(number: int) -> int:
        return number

    other: App[None] = App("shop", store=f"sqlite:///{tmp_path}/shop.db")
    try:
        with db:
            db.execute("INSERT INTO sale VALUES (1)")
            handle = other.named("receipt").options(connection=db).delay(number=5)
        assert handle.result(timeout=SOON) == 5
    finally:
        other.shutdown()


@pytest.mark.parametrize("by_name", [False, True])
def test_first_add_to_a_new_file_may_join_a_transaction(tmp_path: Path, by_name: bool) -> None:
    app: App[None] = App("shop", store=f"sqlite:///{tmp_path}/new.db")

    @app.task
    async def receipt(number: int) -> int:
        return number

    add = app.named("elsewhere") if by_name else receipt
    with closing(sqlite3.connect(tmp_path / "new.db")) as db:
        with db:
            db.execute("CREATE TABLE sale (number INTEGER)")
            db.execute("INSERT INTO sale VALUES (1)")
            handle = add.options(connection=db).delay(number=5)
        assert sales(db) == 1
    assert handle.state() == "ready"
    app.runtime.portal.close()


def test_complete_settles_with_the_commit(app: App[None], db: sqlite3.Connection, tmp_path: Path) -> None:
    @app.task(max_retries=1, backoff=[0])
    async def sell(number: int) -> int:
        context = current_task()
        with closing(sqlite3.connect(tmp_path / "shop.db")) as mine, mine:
            mine.execute("INSERT INTO sale VALUES (?)", (number,))
            context.spawn(note.s(number))
            await context.complete(number * 10, connection=mine)
            if context.attempt == 1:
                raise OSError("before the commit: the effect and the settlement are gone together")
        raise OSError("after the commit: it has succeeded, and stays so")

    noted: list[int] = []

    @app.task
    async def note(number: int) -> None:
        noted.append(number)

    handle = sell.delay(7)
    assert handle.result(timeout=SOON) == 70
    assert handle.info().attempt == 2
    assert sales(db) == 1
    wait_until(lambda: noted == [7])


def test_complete_after_the_lease_is_lost(app: App[None], db: sqlite3.Connection, tmp_path: Path) -> None:
    raised: list[BaseException] = []

    @app.task
    async def sell() -> None:
        context = current_task()
        store = app.runtime.store
        run = current_run()
        assert run is not None
        await store.close_session(run.lease.session, crashed=True)  # the store believes that this worker is dead
        with closing(sqlite3.connect(tmp_path / "shop.db")) as mine, mine:
            mine.execute("INSERT INTO sale VALUES (1)")
            try:
                await context.complete(connection=mine)
            except TaskCancelled as error:
                raised.append(error)
                raise

    handle = sell.delay()
    wait_until(lambda: bool(raised))
    assert "lease is lost" in str(raised[0])
    assert sales(db) == 0
    handle.cancel()


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda task, db: asyncio.run(_enqueue(task, db)), ArgumentError, "write .delay"),
        (lambda task, db: task.options(connection=db).s(), ArgumentError, "joins nothing"),
        (lambda task, db: task.options(connection=db).delay(), StoreRefused, "begin a transaction"),
        (lambda task, db: task.options(connection="shop.db").delay(), StoreRefused, "sqlite3.Connection"),
        (lambda task, db: task.options(connection=None).delay(), StoreRefused, "sqlite3.Connection"),
    ],
)
def test_wrong_connections_are_refused(
    app: App[None], db: sqlite3.Connection, wrong: object, error: type[Exception], text: str
) -> None:
    @app.task
    async def nothing() -> None: ...

    with pytest.raises(error, match=text):
        wrong(nothing, db)  # type: ignore[operator]


async def _enqueue(task: object, db: sqlite3.Connection) -> None:
    await task.options(connection=db).enqueue()  # type: ignore[attr-defined]
