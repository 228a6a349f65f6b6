"""The page of the example Genesis in Chromium: items appear while they are made."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.row_e.test_genesis import genesis
from tests.support.waits import SOON

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ITEMS = "ul.items li"
WAIT = SOON * 1000  # ms


@contextmanager
def genesis_tab(chromium: Browser, folder: Path, **fake: object) -> Iterator[Page]:
    """fake: settings of the model. No script of the page may fail."""
    with genesis(folder, **fake) as example:
        context = chromium.new_context(viewport={"width": 1100, "height": 760})
        page = context.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(example.url)
        yield page
        context.close()
        assert problems == []


@pytest.mark.timed
def test_first_items_are_on_the_page_within_two_seconds_of_the_request(chromium: Browser, tmp_path: Path) -> None:
    with genesis_tab(chromium, tmp_path) as page:
        began = time.monotonic()
        page.click("button.main")
        page.wait_for_selector(ITEMS, timeout=WAIT)
        assert time.monotonic() - began < 2
        page.wait_for_selector("text=all after", timeout=WAIT)
        assert page.locator(ITEMS).count() == 50


def test_page_shows_progress_and_what_operators_do(chromium: Browser, tmp_path: Path) -> None:
    with genesis_tab(chromium, tmp_path, seconds=[0.05, 0.1]) as page:
        page.fill("[name=count]", "20")
        page.select_option("[name=type]", "skill")
        page.click("button.main")
        page.wait_for_selector("text=20 of 20", timeout=WAIT)
        assert page.inner_text(".batch b") == "20 × skill"
        names = page.locator(ITEMS).all_inner_texts()
        assert len(set(names)) == 20
        page.click("text=Freeze")
        page.wait_for_selector("text=Freeze: done", timeout=WAIT)
        page.wait_for_function(
            """() => { document.querySelector("button.main").click();
                       return document.getElementById("note").textContent.includes("Try again in"); }""",
            timeout=WAIT, polling=500,
        )  # fmt: skip
        page.click("text=Thaw")
        page.wait_for_selector("text=Thaw: done", timeout=WAIT)
