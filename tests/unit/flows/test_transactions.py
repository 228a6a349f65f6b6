"""Flows in the transaction of the caller, and the last member that settles in one."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from onthedot import App, ArgumentError, current_task, group
from tests.support.waits import SOON, wait_until


class Shop:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "shop.db"
        self.app = App("shop", store=f"sqlite:///{self.file}", stop_timeout=0)
        self.totals: list[int] = []
        self.settled = threading.Event()
        self.may_end = threading.Event()

        @self.app.task
        async def double(number: int) -> int:
            return number * 2

        @self.app.task
        async def total(numbers: list[int]) -> int:
            self.totals.append(sum(numbers))
            return sum(numbers)

        @self.app.task
        def hold(number: int, fail: bool) -> int:
            with closing(sqlite3.connect(self.file)) as db, db:
                db.execute("INSERT INTO written VALUES (?)", (number,))
                current_task().sync.complete(number, connection=db)
                self.settled.set()
                self.may_end.wait(SOON)
                if fail:
                    raise ValueError("rolled back")
            return number

        @self.app.task
        def write(number: int, fail: bool) -> int:
            with closing(sqlite3.connect(self.file)) as db, db:
                db.execute("INSERT INTO written VALUES (?)", (number,))
                current_task().sync.complete(number, connection=db)
                if fail:
                    raise ValueError("rolled back")
            return number

        self.double = double
        self.total = total
        self.hold = hold
        self.write = write


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    with closing(sqlite3.connect(shop.file)) as db, db:
        db.execute("CREATE TABLE written (number INTEGER)")
    return shop


def test_flow_is_added_by_the_commit_of_the_caller_or_not_at_all(shop: Shop) -> None:
    flow = group(shop.double.s(number) for number in range(3)) | shop.total
    with shop.app.background(), closing(sqlite3.connect(shop.file)) as db:
        shop.double.delay(0).result(timeout=SOON)  # the schema exists
        db.execute("BEGIN IMMEDIATE")
        lost = flow.delay(connection=db)
        db.rollback()
        assert len(lost.tasks()) == 0
        with db:
            db.execute("BEGIN IMMEDIATE")
            kept = flow.delay(connection=db, uuid="kept")
        assert kept.result(timeout=SOON) == 6
        with db:
            db.execute("BEGIN IMMEDIATE")
            assert not flow.delay(connection=db, uuid="kept").added
        with pytest.raises(ArgumentError, match="adds at most 1,000 tasks in one step"):
            (group(shop.double.s(number) for number in range(1001)) | shop.total).delay(connection=db)


@pytest.mark.parametrize("fail", [False, True])
def test_last_member_that_settles_in_a_transaction_counts_with_its_commit(shop: Shop, fail: bool) -> None:
    flow = group([shop.write.s(7, fail)]) | shop.total
    with shop.app.background():
        handle = flow.delay()
        if fail:
            wait_until(lambda: handle.info().state == "cancelled")
            assert handle.progress().failed == 2
        else:
            assert handle.result(timeout=SOON) == 7
    with closing(sqlite3.connect(shop.file)) as db:
        assert db.execute("SELECT count(*) FROM written").fetchone() == (0 if fail else 1,)


@pytest.mark.parametrize("fail", [False, True])
def test_last_task_starts_after_the_commit_and_not_before(shop: Shop, fail: bool) -> None:
    """The file has one writer, so nothing else is written meanwhile: readers see the flow wait."""
    with shop.app.background():
        handle = (group([shop.hold.s(7, fail), shop.double.s(1)]) | shop.total).delay()
        assert shop.settled.wait(SOON)
        assert handle.state() == "waiting"
        assert shop.app.sync.find(source="hold", state="running")
        shop.may_end.set()
        wait_until(handle.done)
        assert handle.state() == ("cancelled" if fail else "succeeded")
    assert shop.totals == ([] if fail else [9])


def test_first_use_of_a_file_may_be_in_a_transaction(shop: Shop) -> None:
    flow = shop.double.s(1) | shop.double
    with closing(sqlite3.connect(shop.file)) as db, db:
        db.execute("BEGIN IMMEDIATE")
        handle = flow.delay(connection=db, uuid="first")
    with shop.app.background():
        assert handle.result(timeout=SOON) == 4
