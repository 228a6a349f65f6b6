"""kill -9 between an effect and the settlement that shares its transaction: exactly one effect, by every driver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest

from onthedot import App
from tests.support.services.postgres import Service
from tests.support.waits import wait_until
from tests.unit.stores.postgres.callers import DRIVERS

ROOT = Path(__file__).parents[4]
POINTS = ("effect", "complete", "commit")
PATIENCE = 60.0  # seconds: a process that has to start, with every driver


@contextmanager
def seller(url: str, name: str, file: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """Killed in the end, whatever it does."""
    command = [sys.executable, "-m", "tests.support.programs.postgres_seller", url, name, str(file), *flags]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.timeout(240)
def test_a_sale_is_made_once(postgres: Service, named: str, tmp_path: Path) -> None:
    url, file = f"{postgres.url}?lease=2", tmp_path / "points"
    file.touch()
    postgres.ask("CREATE TABLE sale (number integer)")
    try:
        app: App[None] = App(named, store=url)
        ways = list(product((driver.__name__ for driver in DRIVERS), POINTS))
        handles = app.named("sell").delay_many(
            [{"number": n, "way": way, "stops_after": point} for n, (way, point) in enumerate(ways)]
        )
        with seller(url, named, file):  # and dead in the midst of all of them
            wait_until(lambda: len(file.read_text().split()) == len(ways), PATIENCE)
        with seller(url, named, file, "on"):
            assert [handle.result(timeout=PATIENCE) for handle in handles] == list(range(len(ways)))
        sold = [number for (number,) in postgres.ask("SELECT number FROM sale ORDER BY number")]
        assert sold == list(range(len(ways)))
        attempts = {way: handle.info().attempt for way, handle in zip(ways, handles, strict=True)}
        assert attempts == {(way, point): 1 if point == "commit" else 2 for way, point in ways}
        app.shutdown()
    finally:
        postgres.ask("DROP TABLE sale")
