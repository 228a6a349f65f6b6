"""Two hundred texts that would be markup or script stay text on every page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.page.conftest import Shop, Watched, watched_tab
from tests.page.corpus_shop import PARTS, TEXTS
from tests.page.looks import visit
from tests.support.waits import SOON

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LISTS = ("", "tasks", "failed", "sources", "workers", "waiting", "outbox", "agents", "audit", "flows", "batches")
REFUSED = ("400 (Bad Request)", "404 (Not Found)", "422 (Unprocessable")  # lines of the browser about its requests
FILL = """
async def main():
    async with corpus_shop.app:
        print(" ".join(await corpus_shop.fill()))
"""
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
        yield shop, filled


@pytest.mark.timeout(300)
def test_no_text_of_the_corpus_becomes_markup_or_script(chromium: Browser, corpus: tuple[Shop, list[str]]) -> None:
    shop, filled = corpus
    assert len(TEXTS) == 200
    with watched_tab(chromium, shop) as tab:
        tab.page.add_init_script(
            "window.violations = [];"
            "addEventListener('securitypolicyviolation', (event) => window.violations.push(event.violatedDirective))"
        )
        failing, answered, streamed, waiting, held = filled
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
        tab.troubles = [trouble for trouble in tab.troubles if not any(each in trouble for each in REFUSED)]


def check(tab: Watched) -> None:
    assert tab.page.evaluate("window.attacked") is None
    assert tab.page.evaluate("window.violations") == []
    assert tab.page.evaluate("({}).attacked") is None, "the prototype of all objects"
    foreign = "main :is(img, script, iframe, object, embed, style, link, base, form[action], a[href^='javascript' i])"
    assert tab.page.locator(foreign).count() == 0
