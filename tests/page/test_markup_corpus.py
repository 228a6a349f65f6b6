"""Two hundred texts that would be markup or script stay text on every page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.page.conftest import Shop, Watched, watched_tab
from tests.page.corpus_shop import NAMES, PARTS, TEXTS
from tests.page.looks import visit
from tests.page.screen_delay import api
from tests.support.waits import SOON, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LISTS = (
    "", "tasks", "failed", "sources", "schedules", "workers", "waiting", "outbox", "agents", "audit", "flows",
    "batches",
)  # fmt: skip
REFUSED = ("400 (Bad Request)", "404 (Not Found)", "422 (Unprocessable")  # lines of the browser about its requests
FILL = """
async def main():
    async with corpus_shop.app:
        print(" ".join(await corpus_shop.fill()))
"""
WATCH_VIOLATIONS = (
    "window.violations = [];"
    "addEventListener('securitypolicyviolation', (event) => window.violations.push(event.violatedDirective))"
)
NEW_FILTER = """async (text) => {
    const box = document.querySelector("#filter");
    box.focus();
    box.value = text;
    box.dispatchEvent(new Event("input", {bubbles: true}));
    await new Promise((done) => requestAnimationFrame(done));
}"""
NEW_ADDRESS = """async (path) => {
    history.pushState({}, "", path);
    window.dispatchEvent(new PopStateEvent("popstate", {state: {}}));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 20)));
}"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shop, list[str]]]:
    shop = Shop(tmp_path_factory.mktemp("corpus"), Path(__file__).with_name("corpus_shop.py"), "corpus")
    filled = shop.run(FILL).split()
    with shop.worker(), shop.page():
        wait_until(lambda: len(api(shop, "/workers")["items"]) > len(TEXTS))
        yield shop, filled


@pytest.mark.timeout(300)
def test_no_text_of_the_corpus_becomes_markup_or_script(chromium: Browser, corpus: tuple[Shop, list[str]]) -> None:
    shop, filled = corpus
    assert len(TEXTS) == 200
    with watched_tab(chromium, shop) as tab:
        tab.page.add_init_script(WATCH_VIOLATIONS)
        failing, answered, streamed, waiting, held, *_ = filled
        for path in (*LISTS, *(f"tasks/{uuid}" for uuid in (answered, streamed, waiting, held))):
            visit(tab, shop, path)
            check(tab)
        for number in range(len(PARTS)):
            visit(tab, shop, f"tasks?q=tag:part{number}")
            assert tab.page.locator("table.tasks tbody tr").count() > 1
            check(tab)
        visit(tab, shop, f"tasks/{failing}")
        tab.page.wait_for_selector(".attempt", timeout=SOON * 1000)
        tab.page.click(".traceback-tools button:has-text('raw')")
        shown = tab.page.inner_text("main")
        assert all(json.dumps(text, ensure_ascii=False)[1:-1][:20] in shown for text in TEXTS if text.isascii())
        check(tab)
        visit(tab, shop, "tasks")
        for text in TEXTS:
            tab.page.evaluate(NEW_FILTER, text)
        check(tab)
        for text in TEXTS[::5]:
            for page in ("tasks", "sources", "flows"):
                tab.page.evaluate(NEW_ADDRESS, f"/{page}/{quote(text, safe='')}")
            check(tab)
        forget_refusals(tab)


@pytest.mark.timeout(300)
def test_no_text_of_the_corpus_becomes_markup_where_details_are_opened(
    chromium: Browser, corpus: tuple[Shop, list[str]]
) -> None:
    shop, filled = corpus
    flow, batch = filled[-2:]
    with watched_tab(chromium, shop) as tab:
        tab.page.add_init_script(WATCH_VIOLATIONS)
        visit(tab, shop, f"flows/{flow}")
        tab.page.wait_for_selector(".task-title .state-failed", timeout=SOON * 1000)
        tab.page.click("button:has-text('as table')")
        check(tab, TEXTS[0])
        visit(tab, shop, f"batches/{batch}")
        tab.page.wait_for_selector(".part.state-failed", timeout=SOON * 1000)
        tab.page.wait_for_selector(".newest-items li", timeout=SOON * 1000)
        check(tab, json.dumps(TEXTS[0])[1:-1])
        for path, name, shown in (("schedules", TEXTS[0], "1 day"), ("workers", TEXTS[0], TEXTS[0])):
            visit(tab, shop, path)
            tab.page.locator("button[data-open]").filter(has_text=name).first.click()
            tab.page.wait_for_selector("tr.detail")
            check(tab, shown)
        visit(tab, shop, "waiting")
        tab.page.get_by_role("row").filter(has_text=NAMES[0]).get_by_role("button", name="Payloads").click()
        tab.page.wait_for_selector("main ul.plain li >> nth=9")
        check(tab, json.dumps(TEXTS[9])[1:-1])
        visit(tab, shop, "outbox")
        for event in ("all", "read"):
            tab.page.locator(f"tr:has(:text-is('{event}'))").get_by_role("button", name="Payload").click()
            tab.page.wait_for_selector("dialog[open] pre")
            for summary in tab.page.locator("dialog[open] summary").all():
                summary.click()
            check(tab, json.dumps(TEXTS[0])[1:-1])
            tab.page.keyboard.press("Escape")
        forget_refusals(tab)


def forget_refusals(tab: Watched) -> None:
    """The API has no schedule with such a name, and no such filter."""
    tab.troubles = [trouble for trouble in tab.troubles if not any(each in trouble for each in REFUSED)]


def check(tab: Watched, shown: str = "") -> None:
    """shown: a text of the page."""
    assert shown in tab.page.inner_text("main")
    assert tab.page.evaluate("window.attacked") is None
    assert tab.page.evaluate("window.violations") == []
    assert tab.page.evaluate("({}).attacked") is None, "the prototype of all objects"
    foreign = "main :is(img, script, iframe, object, embed, style, link, base, form[action], a[href^='javascript' i])"
    assert tab.page.locator(foreign).count() == 0
