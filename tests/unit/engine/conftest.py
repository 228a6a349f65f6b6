"""An app on each of the four stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.services import valkey


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    match request.param:
        case "redis":
            with valkey.server() as server:
                yield server.url
        case "postgres":
            with request.getfixturevalue("postgres").database() as database:
                yield database
        case "sqlite":
            yield f"sqlite:///{tmp_path}/shop.db"
        case _:
            yield "memory://"
