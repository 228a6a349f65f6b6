"""An app of its own for every test, which leaves nothing in the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.postgres import Service


@pytest.fixture
def named(postgres: Service) -> Iterator[str]:
    app = postgres.new_app()
    yield app
    postgres.clean(app)
