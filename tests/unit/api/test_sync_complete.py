"""``ctx.sync.complete(connection=…)``: a sync task settles in its own transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from onthedot import App, BaseTaskConsumer, StoreRefused, Task, TaskCancelled, TaskFailed, current_task
from onthedot.model.context import current_run
from tests.support.services.postgres import Service
from tests.support.sync_callers import WAYS, Way, by_driver
from tests.support.waits import SOON, wait_until

ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


class Shop(NamedTuple):
    """An app that runs, and the URL of its database, which has a table of sales."""

    app: App[None]
    url: str

    def sales(self) -> int:
        with by_driver(self.url) as caller:
            (number,) = caller.run("SELECT count(*) FROM sale").fetchone()
            return int(number)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.once)])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/shop.db"
        app: App[None] = App("shop", store=url)
        with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
            db.execute("CREATE TABLE sale (number INTEGER)")
        with app.background():
            yield Shop(app, url)
        return
    service: Service = request.getfixturevalue("postgres")
    name = service.new_app()
    service.ask("CREATE TABLE sale (number integer)")
    app = App(name, store=service.url)
    try:
        with app.background():
            yield Shop(app, service.url)
    finally:
        service.ask("DROP TABLE sale")
        service.clean(name)


@ways
def test_a_sync_task_settles_with_its_commit(shop: Shop, way: Way) -> None:
    noted: list[int] = []

    @shop.app.task
    def note(number: int) -> None:
        noted.append(number)

    @shop.app.task(max_retries=1, backoff=[0])
    def sell(number: int) -> int:
        context = current_task()
        with way(shop.url) as caller:
            caller.run(f"INSERT INTO sale VALUES ({number:d})")
            context.spawn(note.s(number))
            context.sync.complete(number * 10, connection=caller.connection)
            if context.attempt == 1:
                raise OSError("before the commit: the effect and the settlement are gone together")
            caller.commit()
        raise OSError("after the commit: it has succeeded, and stays so")

    handle = sell.delay(7)
    assert handle.result(timeout=10) == 70
    assert handle.info().attempt == 2
    assert shop.sales() == 1
    wait_until(lambda: noted == [7])


def test_the_settlement_may_come_before_the_first_change(shop: Shop) -> None:
    """A transaction of SQLAlchemy begins there, also where the driver would begin it with the first change."""

    @shop.app.task
    def sell(way: str) -> str:
        with {each.__name__: each for each in WAYS[1:]}[way](shop.url) as caller:
            current_task().sync.complete(way, connection=caller.connection)
            caller.run("INSERT INTO sale VALUES (1)")
            caller.commit()
        return "ignored"

    for way in WAYS[1:]:
        assert sell.delay(way.__name__).result(timeout=10) == way.__name__
    assert shop.sales() == len(WAYS) - 1


def test_a_lost_lease_rolls_the_transaction_of_a_sync_task_back(shop: Shop) -> None:
    raised: list[BaseException] = []

    @shop.app.task
    def sell() -> None:
        run = current_run()
        assert run is not None
        session = run.lease.session
        crash = shop.app.runtime.store.close_session  # the store believes that this worker is dead
        shop.app.runtime.portal.run_sync(lambda _: crash(session, crashed=True))
        with by_driver(shop.url) as caller:
            caller.run("INSERT INTO sale VALUES (1)")
            try:
                current_task().sync.complete(connection=caller.connection)
            except TaskCancelled as error:
                raised.append(error)
                raise
            caller.commit()

    handle = sell.delay()
    wait_until(lambda: bool(raised))
    assert "lease is lost" in str(raised[0])
    assert shop.sales() == 0
    handle.cancel()


def test_the_async_form_in_a_sync_task_names_the_sync_form(shop: Shop) -> None:
    @shop.app.task
    def sell() -> None:
        with by_driver(shop.url) as caller:
            caller.run("INSERT INTO sale VALUES (1)")
            current_task().complete(connection=caller.connection)
            caller.commit()

    with pytest.raises(TaskFailed, match=r"TypeError: ctx\.complete\(\) in 'sell', a sync task: write ctx\.sync\."):
        sell.delay().result(timeout=10)
    assert shop.sales() == 0, "the effect is rolled back"


def test_a_sync_consumer_settles_with_its_commit(shop: Shop) -> None:
    class Sell(BaseTaskConsumer):
        name = "sell"

        def consume(self, task: Task) -> None:
            with by_driver(shop.url) as caller:
                caller.run("INSERT INTO sale VALUES (1)")
                current_task().sync.complete("sold", connection=caller.connection)
                caller.commit()

    shop.app.register(Sell())
    assert shop.app.named("sell").delay().result(timeout=10) == "sold"
    assert shop.sales() == 1


def test_a_store_without_transactions_refuses_the_settlement() -> None:
    app: App[None] = App("shop", store="memory://")
    refused: list[Exception] = []

    @app.task
    def sell() -> int:
        try:
            current_task().sync.complete(connection=object())
        except StoreRefused as error:
            refused.append(error)
        return 5

    with app.background():
        assert sell.delay().result(timeout=SOON) == 5
    assert "which can return its result instead: memory:// and redis:// have no transaction" in str(refused[0])
