"""An app on each store that keeps counters, with a task that makes names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onthedot import App
from tests.support.app_stores import AppStore, flow_store

__all__ = ["app", "flow_store"]


@pytest.fixture
def app(flow_store: AppStore) -> Iterator[App]:
    app = App(flow_store.name, store=flow_store.url, stop_timeout=0)
    yield app
    app.shutdown()
