"""The answers where the page was not built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onthedot import App
from onthedot.web import assets
from tests.support.web_site import web_site


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(assets.Assets.__init__, "__defaults__", (tmp_path,))


@pytest.mark.usefixtures("no_page")
async def test_page_that_is_not_built_names_the_command(shop: App[Any]) -> None:
    async with shop, web_site(shop) as site:
        for path in ("/", "/tasks", "/login"):
            answer = await site.browser().at("").get(path, Accept="text/html")
            assert answer.status == 503, path
            text = answer.body.decode()
            assert "it was not built with this installation" in text
            assert "<code>./dev page</code>" in text
        assert (await site.operator.get("/status")).status == 200, "the API works without it"


@pytest.mark.usefixtures("no_page")
async def test_page_that_is_built_later_needs_no_restart(shop: App[Any], tmp_path: Path) -> None:
    async with shop, web_site(shop) as site:
        assert (await site.browser().at("").get("/", Accept="text/html")).status == 503
        (tmp_path / "app-AAAAAAAA.js").touch()
        (tmp_path / "manifest.json").write_text(
            '{"script": "app-AAAAAAAA.js", "style": "app-BBBBBBBB.css", "icon": "icon.svg"}'
        )
        assert (await site.browser().at("").get("/", Accept="text/html")).status == 200
