"""A store with several apps: one of them is chosen in the frame of the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.page.conftest import Shop, watched_tab
from tests.support.waits import SOON

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FILL = """
from onthedot import App

async def main():
    archive = App("archive")
    archive.task(name="restore")(lambda year: None)
    async with archive:
        await archive.named("restore").enqueue(1999)
    async with shop.app:
        await shop.email.enqueue("ann@example.com")
"""
LIVE = "document.querySelector('.connection.live')?.textContent.includes('live')"


def test_app_is_chosen_in_the_frame_and_stays_chosen(chromium: Browser, tmp_path: Path) -> None:
    shop = Shop(tmp_path, name="")
    shop.run(FILL)
    with shop.page(), watched_tab(chromium, shop) as tab:
        page = tab.page
        page.wait_for_selector("select.app")
        assert page.input_value("select.app") == "archive"
        assert page.locator("select.app option").all_inner_texts() == ["archive", "shop"]
        page.select_option("select.app", "shop")
        page.wait_for_url("**/?app=shop")
        page.wait_for_selector("nav a:has-text('Tasks')")
        page.click("nav a:has-text('Tasks')")
        page.wait_for_url("**/tasks?app=shop")
        page.wait_for_selector("table.tasks tr:has-text('mail to ann@example.com')")
        page.reload()
        page.wait_for_selector("table.tasks tr:has-text('mail to ann@example.com')")
        assert page.input_value("select.app") == "shop"
        page.wait_for_function(f"() => {LIVE}", timeout=SOON * 1000)
        page.click("table.tasks tbody a >> nth=0")
        page.wait_for_selector("h1:has-text('mail to ann@example.com')")
        assert page.url.endswith("?app=shop")
        page.select_option("select.app", "archive")
        page.wait_for_selector("a:has-text('restore')")
