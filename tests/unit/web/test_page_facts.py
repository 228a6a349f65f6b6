"""The facts in the HTML of the page, which its head needs before the first answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from onthedot import App
from onthedot.web import assets
from tests.support.web_site import WebSite, web_site


@pytest.fixture(autouse=True)
def built_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "app-AAAAAAAA.js").touch()
    names = '{"script": "app-AAAAAAAA.js", "style": "app-BBBBBBBB.css", "icon": "icon.svg"}'
    (tmp_path / "manifest.json").write_text(names)
    monkeypatch.setattr(assets.Assets.__init__, "__defaults__", (tmp_path,))


async def facts(site: WebSite, path: str, user: str = "ana") -> dict[str, str]:
    answer = await site.browser(user).at("").get(path, Accept="text/html")
    assert answer.headers["cache-control"] == "no-store"
    return dict(re.findall(r' data-(\w+)="([^"]*)"', answer.body.decode()))


async def test_page_knows_the_user_and_the_features_that_status_returns(shop: App[Any]) -> None:
    async with shop, web_site(shop, environment="production") as site:
        for user in ("ana", "ben"):
            status = await site.browser(user).json("/status")
            found = await facts(site, "/sources", user)
            assert found.pop("base") == "/"
            assert found.pop("features").split() == status["features"]
            assert found == {name: status[name] for name in ("app", "environment", "user", "role")}
        assert (await facts(site, "/sources", "ben"))["role"] == "viewer"


async def test_sign_in_has_no_facts(shop: App[Any]) -> None:
    async with shop, web_site(shop, environment="production") as site:
        assert await facts(site, "/login") == {"base": "/"}


async def test_name_in_the_address_is_text(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        found = await facts(site, "/?app=%22%3E%3Cscript%3E%27%26")
        assert found["app"] == "&quot;&gt;&lt;script&gt;&#x27;&amp;"
