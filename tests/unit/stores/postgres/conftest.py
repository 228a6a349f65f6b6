"""An app of its own for every test, which leaves nothing in the server; or a database of its own."""

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
    """The URL of a database in which nothing is yet."""
    with postgres.database() as url:
        yield url
