from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.services import valkey


@pytest.fixture
def server() -> Iterator[valkey.Server]:
    """A server that the test may interrupt, fill and stop."""
    with valkey.server() as own:
        yield own


@pytest.fixture
def safe() -> Iterator[valkey.Server]:
    """A server that syncs before it answers."""
    with valkey.server("--appendonly", "yes", "--appendfsync", "always") as own:
        yield own
