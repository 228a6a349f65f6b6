"""A store that is not there is reported at once, whichever it is."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onthedot import App
from onthedot.errors import StoreUnavailable
from tests.support.services.ports import free_port


@pytest.fixture(params=["redis refused", "redis unknown", "postgres refused", "postgres unknown", "sqlite folder"])
def app(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App[None]]:
    """An app on a port where nothing listens, on a host that has no address, or in a folder that does not exist."""
    kind, what = request.param.split()
    host = f"127.0.0.1:{free_port()}"
    if what == "unknown":
        host = "no-such-host.invalid"
        monkeypatch.setattr(socket, "getaddrinfo", unknown_host)
    url = {
        "redis": f"redis://{host}",
        "postgres": f"postgresql://{host}/shop",
        "sqlite": f"sqlite:///{tmp_path}/a/b.db",
    }
    app = App("shop", store=url[kind])
    with pytest.raises(StoreUnavailable):
        app.named("send").delay()  # imports the driver, which takes long on a busy machine
    yield app
    app.shutdown()


def unknown_host(*_: object, **__: object) -> Any:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.timed
def test_add_is_refused_within_half_a_second_and_the_task_is_not_stored(app: App[None]) -> None:
    send = app.named("send")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as refused:
        send.options(uuid="u1").delay()
    assert time.monotonic() - began < 0.5
    assert (refused.value.uuid, refused.value.stored) == ("u1", False)


@pytest.mark.timed
async def test_awaited_add_is_refused_within_half_a_second(app: App[None]) -> None:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as refused:
        await app.named("send").enqueue()
    assert time.monotonic() - began < 0.5
    assert refused.value.stored is False
