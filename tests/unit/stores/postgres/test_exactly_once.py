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
PATIENCE = 60.0  # seconds; a process must start and import every driver


@contextmanager
def seller(url: str, name: str, file: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process that is killed at the end."""
    command = [sys.executable, "-m", "tests.support.programs.postgres_seller", url, name, str(file), *flags]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.timeout(240)
def test_an_effect_happens_once_when_workers_are_killed_at_any_point(
    postgres: Service, named: str, tmp_path: Path
) -> None:
    url = f"{postgres.url}?lease=2"
    file = tmp_path / "points"
    file.touch()
    postgres.ask("CREATE TABLE sale (number integer)")
    try:
        app: App[None] = App(named, store=url)
        ways = list(product((driver.__name__ for driver in DRIVERS), POINTS))
        handles = app.named("sell").delay_many(
            [{"number": n, "way": way, "stops_after": point} for n, (way, point) in enumerate(ways)]
        )
        with seller(url, named, file):  # killed while all of them run
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
