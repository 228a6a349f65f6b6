from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.services import valkey


@pytest.fixture
def server() -> Iterator[valkey.Server]:
    """One that the test may cut, fill and stop."""
    with valkey.server() as own:
        yield own


@pytest.fixture
def safe() -> Iterator[valkey.Server]:
    """One that has on its disk what it has answered for."""
    with valkey.server("--appendonly", "yes", "--appendfsync", "always") as own:
        yield own
