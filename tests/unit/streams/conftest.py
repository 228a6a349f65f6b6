"""An app on each store that knows flows."""

from __future__ import annotations

import pytest

from onthedot import App
from tests.support.app_stores import AppStore


@pytest.fixture
def app(app_store: AppStore) -> App:
    return App(app_store.name, store=app_store.url, poll_interval=60)  # a lost hint shows as a test that hangs
