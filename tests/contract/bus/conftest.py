"""The kinds of buses, and the fixtures that open them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from itertools import count
from typing import Any

import pytest

from onthedot.clock.system import SystemClock
from onthedot.stores import connect
from onthedot.stores.memory import MemoryStore
from onthedot.stores.sqlite import SqliteStore
from tests.contract.bus import BusHouse, BusServer
from tests.contract.bus.kafka_server import KafkaServer
from tests.contract.bus.store_server import StoreServer

_NUMBERS = count(1)


def _on_kafka(request: pytest.FixtureRequest) -> BusServer:
    return KafkaServer(request.getfixturevalue("kafka"))


def _on_memory(_: pytest.FixtureRequest) -> BusServer:
    store = MemoryStore(SystemClock())
    return StoreServer(lambda: store)


def _on_sqlite(request: pytest.FixtureRequest) -> BusServer:
    path = request.getfixturevalue("tmp_path") / "bus.db"
    return StoreServer(lambda: SqliteStore(path, SystemClock()))


def _on_postgres(request: pytest.FixtureRequest) -> BusServer:
    service = request.getfixturevalue("postgres")
    app = service.new_app()
    request.addfinalizer(lambda: service.clean(app))
    url = service.url
    return StoreServer(lambda: connect(url, SystemClock(), app))


KINDS: dict[str, Callable[[pytest.FixtureRequest], BusServer]] = {
    "kafka": _on_kafka,
    "memory": _on_memory,
    "sqlite": _on_sqlite,
    "postgres": _on_postgres,
}


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.once) for kind in KINDS])
def server(request: pytest.FixtureRequest) -> BusServer:
    return KINDS[request.param](request)


@pytest.fixture
def house(server: BusServer) -> BusHouse:
    return BusHouse(server)


@pytest.fixture
def topic(server: BusServer) -> str:
    return server.new_topic()


@pytest.fixture
def group() -> str:
    from tests.support.services.kafka import new_name

    return new_name()


@pytest.fixture(autouse=True)
def exercised(request: pytest.FixtureRequest, house: BusHouse) -> None:
    """Every test closes what it has opened, in its event loop, and leaves no task behind."""
    test = request.node.obj

    @wraps(test)
    async def run(**arguments: Any) -> None:
        async with house:
            await test(**arguments)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    request.node.obj = run
