"""An app name and a store for one test, on each of the four stores. Nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.redis import RedisStore
from tests.support.services import valkey
from tests.support.services.postgres import Service

KINDS = ["memory", "sqlite", *(pytest.param(kind, marks=pytest.mark.once) for kind in ("redis", "postgres"))]
FLOW_KINDS = KINDS


class AppStore(NamedTuple):
    """The argument of `App(name, store=url)`."""

    name: str
    url: str


@pytest.fixture(params=KINDS)
def app_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AppStore]:
    yield from open_store(request, tmp_path)


@pytest.fixture(params=FLOW_KINDS)
def flow_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AppStore]:
    """The stores that keep counters."""
    yield from open_store(request, tmp_path)


def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AppStore]:
    if request.param == "postgres":
        service: Service = request.getfixturevalue("postgres")
        name = service.new_app()
        yield AppStore(name, service.url)
        service.clean(name)
    elif request.param == "redis":
        name = valkey.new_name()
        yield AppStore(name, valkey.url())
        valkey.forget(RedisStore(valkey.url(), ManualClock(), name).prefix)
        assert valkey.connections() == [], "a connection is left"
    else:
        yield AppStore("shop", f"sqlite:///{tmp_path}/shop.db" if request.param == "sqlite" else "memory://")
