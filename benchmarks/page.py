"""The page for operators: ``./dev bench page``. It needs the built page (`./dev page`) and Chromium.

The figures are times of the clock: other programs of the machine matter.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from benchmarks.flow_stores import STORES
from benchmarks.page_drain import drain_memory, drain_postgres, drain_redis, drain_sqlite
from benchmarks.page_failures import failures_postgres, failures_redis, failures_sqlite
from benchmarks.page_million import million_postgres, million_redis, million_sqlite
from benchmarks.report import Figure
from tests.page.conftest import Shop, started_chromium
from tests.page.screen_delay import GATE_SHOP, Screen, p95

_TASKS = 200
_BETWEEN = 1.1  # seconds between two ends: counts are read once per second
_P50 = 120.0  # ms
_P95 = 300.0


def _delays(kind: str, scale: float, *, beside_transaction: bool = False) -> list[Figure]:
    """From the end of a task to the screen, on three pages."""
    with STORES[kind]() as new_store, tempfile.TemporaryDirectory(prefix="onthedot-bench-") as folder:
        store = new_store()
        shop = Shop(Path(folder), GATE_SHOP, "gates", store)
        others = _open_transaction(store) if beside_transaction else nullcontext()
        with shop.both(), others, started_chromium() as chromium:
            screen = Screen(chromium, shop, Path(folder))
            found = screen.measure(max(5, int(_TASKS * scale)), _BETWEEN)
            screen.close()
    title = f"{kind} beside an open transaction" if beside_transaction else kind
    return [
        figure
        for page, delays in found.items()
        for figure in (
            Figure(
                statistics.median(delays), _P50, "ms", f"{title}: end of a task → {page.title()}, p50", 1, least=False
            ),
            Figure(p95(delays), _P95, "ms", f"{title}: end of a task → {page.title()}, p95", 1, least=False),
        )
    ]


@contextmanager
def _open_transaction(url: str) -> Iterator[None]:
    """It has written, so that readers cannot know which numbers it will use."""
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE something_else (number int)")
        yield
        connection.rollback()


def screen_memory(scale: float) -> list[Figure]:
    return _delays("memory", scale)


def screen_sqlite(scale: float) -> list[Figure]:
    return _delays("SQLite", scale)


def screen_redis(scale: float) -> list[Figure]:
    return _delays("Redis", scale)


def screen_postgres(scale: float) -> list[Figure]:
    return _delays("Postgres", scale)


def screen_postgres_transaction(scale: float) -> list[Figure]:
    return _delays("Postgres", scale, beside_transaction=True)


MEASURES = [
    screen_memory,
    screen_sqlite,
    screen_redis,
    screen_postgres,
    screen_postgres_transaction,
    million_sqlite,
    million_redis,
    million_postgres,
    drain_memory,
    drain_sqlite,
    drain_redis,
    drain_postgres,
    failures_sqlite,
    failures_redis,
    failures_postgres,
]
