"""Several apps of one store behind one server, on every kind of store that processes share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from onthedot import App
from onthedot.errors import StoreRefused
from onthedot.web import store_apps
from onthedot.web.app_site import app_site
from onthedot.web.context import AppFacts
from onthedot.web.settings import WebSettings
from onthedot.web.store_apps import StoreApps
from tests.support.waits import until
from tests.support.web_client import WebClient
from tests.support.web_server import serving
from tests.support.web_site import CREDENTIALS, OPERATOR_TOKEN, VIEWER_TOKEN
from tests.unit.cli.conftest import empty_server
from tests.unit.web.test_streams import stream


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/shop.db"
        return
    with empty_server(request, request.param) as url:
        yield url


def new_app(name: str, url: str) -> App[Any]:
    app: App[Any] = App(name, store=url)
    app.task(name="send")(lambda to="": None)
    return app


class Server:
    """Of the apps `mail` and `shop`; `mail` is shown first."""

    def __init__(self, port: int, opened: list[App[Any]]) -> None:
        self.port = port
        self._opened = opened
        self.operator = WebClient(port, {"Authorization": f"Bearer {OPERATOR_TOKEN}"})
        self.viewer = WebClient(port, {"Authorization": f"Bearer {VIEWER_TOKEN}"})
        self.nobody = WebClient(port, {})

    @property
    def opened(self) -> list[str]:
        """Apps beside the first one that the server has opened."""
        return [app.name for app in self._opened]


@asynccontextmanager
async def server(url: str) -> AsyncGenerator[Server]:
    opened: list[App[Any]] = []

    def make(name: str) -> App[Any]:
        opened.append(new_app(name, url))
        return opened[-1]

    mail = new_app("mail", url)
    async with mail, new_app("shop", url) as shop:
        await mail.named("send").enqueue(to="ann")
        await shop.named("send").enqueue(to="bob")
        await shop.named("send").enqueue(to="cy")
        async with StoreApps(url, make) as others:
            site = app_site(mail, WebSettings(credentials=CREDENTIALS), AppFacts("mail", "x", "1.0"), others=others)
            async with serving(site, http="h11", lifespan="off", root_path="") as found:
                yield Server(found.port, opened)
    assert [app.runtime.portal.connected() for app in opened] == [None] * len(opened), "an app is still open"


async def test_each_request_is_about_the_app_that_it_names(url: str) -> None:
    async with server(url) as site:
        status = await site.viewer.json("/status")
        assert (status["app"], status["apps"]) == ("mail", ["mail", "shop"])
        assert site.opened == []
        status = await site.viewer.json("/status?app=shop")
        assert (status["app"], status["apps"]) == ("shop", ["mail", "shop"])
        for app, number in (("", 1), ("mail", 1), ("shop", 2)):
            assert len((await site.viewer.json(f"/tasks?app={app}"))["items"]) == number, app
        assert site.opened == ["shop"]  # once, when it was needed


async def test_changes_and_their_audit_are_those_of_the_app(url: str) -> None:
    async with server(url) as site:
        answer = await site.operator.post("/sources/send/pause?app=shop", {"reason": "vendor down"})
        assert answer.status == 200
        assert [each["source"] for each in (await site.viewer.json("/status?app=shop"))["paused"]] == ["send"]
        assert (await site.viewer.json("/status"))["paused"] == []
        assert [row["action"] for row in (await site.viewer.json("/audit?app=shop"))["items"]] == ["pause"]
        assert (await site.viewer.json("/audit"))["items"] == []


async def test_other_apps_need_the_same_credentials_and_roles(url: str) -> None:
    async with server(url) as site:
        assert (await site.nobody.get("/status?app=shop")).status == 401
        assert (await site.nobody.get("/status?app=none")).status == 401
        assert (await site.viewer.post("/sources/send/pause?app=shop", {"reason": "x"})).status == 403
        assert site.opened == []  # nobody who may not read has a store opened
        answer = await site.viewer.get("/status?app=none")
        assert (answer.status, answer.json()["error"]["field"]) == (404, "app")


async def test_preview_of_one_app_starts_nothing_in_another(url: str) -> None:
    async with server(url) as site:
        body = {"action": "cancel", "q": "source:send"}
        token = (await site.operator.post("/tasks/preview", body)).json()["token"]
        answer = await site.operator.post("/tasks/cancel?app=shop", {"token": token})
        assert (answer.status, answer.json()["error"]["field"]) == (422, "token")
        assert (await site.operator.post("/tasks/cancel", {"token": token})).status == 202


async def test_streams_are_those_of_the_app(url: str) -> None:
    async with server(url) as site, stream(site.port, "watch=overview&app=shop") as messages:
        assert (await messages.until("counts"))["send"] == {"ready": 2}


async def test_requests_at_the_same_time_open_an_app_once(url: str) -> None:
    async with server(url) as site:
        answers = await asyncio.gather(*(site.viewer.get("/tasks?app=shop") for _ in range(5)))
        assert [answer.status for answer in answers] == [200] * 5
        assert site.opened == ["shop"]


async def test_app_that_is_new_in_the_store_appears(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onthedot.web.store_apps.NAMES_AGE", 0.0)
    async with server(url) as site:
        assert (await site.viewer.get("/status?app=late")).status == 404
        async with new_app("late", url) as late:
            await late.named("send").enqueue(to="dan")

        async def is_listed() -> bool:
            return "late" in (await site.viewer.json("/status"))["apps"]

        await until(is_listed)
        assert (await site.viewer.json("/status?app=late"))["app"] == "late"


async def test_apps_that_cannot_be_listed_do_not_hide_the_one_that_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(url: str) -> list[str]:
        raise StoreRefused("a scan of all keys takes too long")

    monkeypatch.setattr(store_apps, "apps_of", refuse)
    async with server(f"sqlite:///{tmp_path}/shop.db") as site:
        status = await site.viewer.json("/status")
        assert (status["app"], status["apps"]) == ("mail", ["mail"])
        assert (await site.viewer.get("/status?app=shop")).status == 404
    assert (
        caplog.messages.count("[apps] the apps of the store cannot be listed: a scan of all keys takes too long") == 1
    )
