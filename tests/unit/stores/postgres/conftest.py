"""An app, or a database, for one test. It leaves nothing on the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.services.postgres import Service


@pytest.fixture
def named(postgres: Service) -> Iterator[str]:
    app = postgres.new_app()
    yield app
    postgres.clean(app)


@pytest.fixture
def empty(postgres: Service) -> Iterator[str]:
    """The URL of an empty database."""
    with postgres.database() as url:
        yield url
