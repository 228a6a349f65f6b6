"""An app, a test of it, and nothing left afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from onthedot import App
from onthedot.testing import TestApp
from tests.unit.testing.steps import Log


@pytest.fixture
def app() -> App:
    return App("shop", store="redis://nobody.invalid")  # would fail, were it used


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(5)  # those of app.background() end soon after it; TestApp's own are gone already
    assert set(threading.enumerate()) <= before


@pytest.fixture
def test(app: App) -> Iterator[TestApp]:
    with TestApp(app) as test:
        yield test


@pytest.fixture
def log(test: TestApp) -> Log:
    return Log(test)
