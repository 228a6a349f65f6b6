"""kill -9 between an effect and the settlement that shares its transaction: exactly one effect, in sync tasks."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import product
from pathlib import Path

import pytest

from onthedot import App
from tests.support.services.postgres import Service
from tests.support.sync_callers import WAYS, Way, by_driver, by_session
from tests.support.waits import wait_until

ROOT = Path(__file__).parents[2]
POINTS = ("effect", "complete", "commit")
PATIENCE = 60.0  # seconds; a process must start and import every driver

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]


@contextmanager
def seller(*arguments: str) -> Iterator[None]:
    """A worker process that is killed at the end."""
    command = [sys.executable, "-m", "tests.support.programs.sync_seller", *arguments]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            yield
        finally:
            process.kill()


def reached(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()]


def attempts(point: str) -> int:
    """After the commit the task has succeeded, although its worker died."""
    return 1 if point == "commit" else 2


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_an_effect_on_sqlite_happens_once_when_the_worker_is_killed_at_any_point(executor: str, tmp_path: Path) -> None:
    """One task at a time: the file has one writer. Each worker also runs the task of the one that was killed before."""
    url = f"sqlite:///{tmp_path}/shop.db"
    file = tmp_path / "points"
    file.touch()
    cases = {"thread": [(by_session, "effect"), *zip(WAYS, POINTS, strict=False)], "process": [(by_driver, "complete")]}
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db, closing_app(App("shop", store=url)) as app:
        db.execute("CREATE TABLE sale (number INTEGER)")
        db.commit()
        handles = []
        for number, (way, point) in enumerate(cases[executor]):
            handles.append(app.named("sell").delay(number=number, way=way.__name__, stops_after=point))
            with seller(url, "shop", str(file), executor):
                wait_until(lambda number=number: number in reached(file), PATIENCE)
        with seller(url, "shop", str(file), executor):
            assert [handle.result(timeout=PATIENCE) for handle in handles] == list(range(len(handles)))
        sold = [number for (number,) in db.execute("SELECT number FROM sale ORDER BY number")]
        assert sold == list(range(len(handles)))
        assert [handle.info().attempt for handle in handles] == [attempts(point) for _, point in cases[executor]]


@pytest.mark.parametrize(("executor", "ways"), [("thread", WAYS), ("process", [by_session])])
def test_an_effect_on_postgres_happens_once_when_the_worker_is_killed_at_any_point(
    executor: str, ways: Sequence[Way], postgres: Service, tmp_path: Path
) -> None:
    url = f"{postgres.url}?lease=2"
    name = postgres.new_app()
    file = tmp_path / "points"
    file.touch()
    cases = list(product([way.__name__ for way in ways], POINTS))
    postgres.ask("CREATE TABLE sale (number integer)")
    try:
        with closing_app(App(name, store=url)) as app:
            handles = app.named("sell").delay_many(
                [{"number": n, "way": way, "stops_after": point} for n, (way, point) in enumerate(cases)]
            )
            with seller(url, name, str(file), executor):  # killed while all of them run
                wait_until(lambda: len(reached(file)) == len(cases), PATIENCE)
            with seller(url, name, str(file), executor):
                assert [handle.result(timeout=PATIENCE) for handle in handles] == list(range(len(cases)))
            sold = [number for (number,) in postgres.ask("SELECT number FROM sale ORDER BY number")]
            assert sold == list(range(len(cases)))
            assert [handle.info().attempt for handle in handles] == [attempts(point) for _, point in cases]
    finally:
        postgres.ask("DROP TABLE sale")
        postgres.clean(name)


@contextmanager
def closing_app(app: App[None]) -> Iterator[App[None]]:
    try:
        yield app
    finally:
        app.shutdown()
