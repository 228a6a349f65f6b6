"""Many tabs over HTTP/1.1, of which a browser has six connections per host."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults import scaled
from tests.page.conftest import TOKEN, Shop, Watched
from tests.page.screen_delay import GATE_SHOP
from tests.page.test_browser import visit
from tests.support.waits import SOON, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HIDES = """
let isHidden = HIDDEN;
Object.defineProperty(document, "hidden", {get: () => isHidden});
window.setHidden = (hidden) => {
    isHidden = hidden;
    document.dispatchEvent(new Event("visibilitychange"));
};
"""
LIVE = "document.querySelector('.connection.live')?.textContent.includes('live')"
FAILED = """async () => {
    const answer = await fetch("/api/v1/tasks?q=source:deliver%20state:failed");
    return (await answer.json()).items.length;
}"""
LOADED = scaled(3, 1)  # seconds; the short form only guards, since it also runs on busy machines
SHOWN = scaled(3, 1)


def new_tab(opener: Page, shop: Shop, *, hidden: bool) -> Page:
    """Chromium without a screen shows every tab, so the page is made to believe that it is hidden."""
    page = opener.context.new_page()
    page.add_init_script(HIDES.replace("HIDDEN", str(hidden).lower()))
    began = time.monotonic()
    page.goto(f"{shop.address}/")
    page.wait_for_selector(".tiles", timeout=SOON * 1000)
    print(f"loaded after {time.monotonic() - began:.2f} s")
    assert time.monotonic() - began <= LOADED
    return page


def start_retry(page: Page, rate: str) -> None:
    page.click("text=Retry all that match…")
    page.wait_for_selector("dialog:has-text('Retry 4 tasks?')")
    page.fill("dialog label:has-text('Tasks per second') input", rate)
    page.click("dialog button[type=submit]")


def test_second_tab_shows_the_bulk_action_of_the_first_and_stops_it(tab: Watched, shop: Shop) -> None:
    second = tab.page.context.new_page()
    wait_until(lambda: tab.page.evaluate(FAILED) == 4)  # later ones would wait behind "new"
    visit(tab, shop, "tasks?q=source%3Adeliver%20state%3Afailed")
    tab.page.wait_for_selector("table.tasks tbody tr >> nth=3", timeout=SOON * 1000)
    second.goto(f"{shop.address}/schedules")  # it shows nothing of the tasks
    second.wait_for_function(f"() => {LIVE}", timeout=SOON * 1000)
    start_retry(tab.page, "0.1")
    line = second.wait_for_selector(".progress-line:has-text('retry tasks, by operator')", timeout=SOON * 1000)
    assert line is not None
    second.wait_for_selector(".progress-line:has-text('changed · running')", timeout=SOON * 1000)
    second.click(".progress-line >> text=Stop")
    second.wait_for_selector(".progress-line", state="detached", timeout=SOON * 1000)  # by itself
    tab.page.wait_for_selector(".progress-line:has-text('changed · stopped')", timeout=SOON * 1000)
    tab.page.click(".progress-line >> text=Close")


@pytest.mark.long
@pytest.mark.timed
def test_eight_tabs_load_and_each_is_live_when_it_is_shown(chromium: Browser, tmp_path: Path) -> None:
    shop = Shop(tmp_path, GATE_SHOP, "gates")
    with shop.both():
        context = chromium.new_context(reduced_motion="reduce", bypass_csp=True)
        page = context.new_page()
        page.goto(f"{shop.address}/?token={TOKEN}")
        page.goto("about:blank")
        tabs = [new_tab(page, shop, hidden=number > 0) for number in range(8)]
        tabs[0].wait_for_function(LIVE, timeout=SOON * 1000)
        shown = tabs[0]
        for number, tab in enumerate(tabs[1:], 1):
            shown.evaluate("setHidden(true)")
            if number % 4 == 0:  # those that were shown give their connections back after five seconds
                for other in tabs[:number]:
                    other.wait_for_function(f"!({LIVE})", timeout=SOON * 1000)
            began = time.monotonic()
            tab.evaluate("setHidden(false)")
            tab.wait_for_function(LIVE, timeout=SOON * 1000)
            print(f"live after {time.monotonic() - began:.2f} s")
            assert time.monotonic() - began <= SHOWN
            shown = tab
        context.close()
