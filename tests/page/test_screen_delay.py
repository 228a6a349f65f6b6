"""The end of a task on the screen, on every store. ``./dev bench page`` has p95 of many tasks: here are few."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.page.conftest import Shop
from tests.page.screen_delay import GATE_SHOP, Screen
from tests.support.services import valkey
from tests.support.services.postgres import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TASKS = 16
BOUND = 300.0  # ms of the median; the goal for p95 on a quiet machine


@contextmanager
def store_url(kind: str, request: pytest.FixtureRequest) -> Iterator[str]:
    if kind == "redis":
        with valkey.server() as server:
            yield server.url
    elif kind == "postgres":
        service: Service = request.getfixturevalue("postgres")
        with service.database() as url:
            yield url
    else:
        yield "memory://" if kind == "memory" else ""


@pytest.mark.timed
@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis", "postgres"])
def test_ended_task_is_soon_on_the_screen(
    chromium: Browser, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    with store_url(kind, request) as store:
        shop = Shop(tmp_path, GATE_SHOP, "gates", store)
        with shop.both():
            screen = Screen(chromium, shop, tmp_path, ("tasks", "task"))
            delays = screen.measure(TASKS, shortest=0.2)
            screen.close()
    for page, found in delays.items():
        print(f"{kind}, {page}: {sorted(map(round, found))} ms")
        assert statistics.median(found) <= BOUND, page
