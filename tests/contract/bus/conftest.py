"""The kinds of buses, and the fixtures that open them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from itertools import count
from typing import Any

import pytest

from tests.contract.bus import BusHouse, BusServer
from tests.contract.bus.kafka_server import KafkaServer

_NUMBERS = count(1)


def _on_kafka(request: pytest.FixtureRequest) -> BusServer:
    return KafkaServer(request.getfixturevalue("kafka"))


KINDS: dict[str, Callable[[pytest.FixtureRequest], BusServer]] = {"kafka": _on_kafka}


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
