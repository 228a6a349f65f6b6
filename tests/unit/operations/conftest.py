"""For tests of moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.redis import RedisStore
from tests.support.services import valkey
from tests.support.services.postgres import Service


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """With the server that it needs, and nothing left in it."""
    way: str = request.param
    service: Service | None = request.getfixturevalue("postgres") if "postgres" in way else None
    yield way
    for name in ("one", "other"):
        if service is not None:
            Service.current.clean(name)
        if "redis" in way:
            valkey.forget(RedisStore(valkey.url(), ManualClock(), name).prefix)
