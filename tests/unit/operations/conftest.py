"""Fixtures for tests of moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.redis import RedisStore
from tests.support.services import valkey
from tests.support.services.postgres import Service


@pytest.fixture
def direction(request: pytest.FixtureRequest) -> Iterator[str]:
    """Start the server that the stores need, and delete their data afterwards."""
    direction: str = request.param
    service: Service | None = request.getfixturevalue("postgres") if "postgres" in direction else None
    yield direction
    for name in ("one", "other"):
        if service is not None:
            Service.current.clean(name)
        if "redis" in direction:
            valkey.forget(RedisStore(valkey.url(), ManualClock(), name).prefix)
