"""Secrets in the data of users: no page in Chromium has one, while the text beside them is shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from anyio.from_thread import start_blocking_portal

from tests.page.conftest import Watched, watched_tab
from tests.page.looks import await_role, visit
from tests.support.waits import until
from tests.support.web_site import OPERATOR_TOKEN, WebSite, web_site
from tests.unit.web.secret_shop import PLAIN, SECRET, SecretShop
from tests.unit.web.test_secrets import has_counted

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WITH_TEXTS = (
    "", "tasks", "tasks?q=state%3Afailed", "tasks/{pay}", "tasks/{read}", "tasks/{stream}", "tasks/{hold}",
    "tasks/{approve}", "tasks/{greet}", "failed", "sources", "sources/pay", "sources/greet", "sources/agent.packer",
    "schedules", "flows", "flows/{flow}", "batches/{batch}", "waiting", "outbox", "agents", "audit",
)  # fmt: skip
WITHOUT_TEXTS = ("workers", "batches")
"""These show no text of users."""
BUTTONS = {
    "tasks/{pay}": ("With changes…",),
    "schedules": ("mail", "Edit…"),
    "outbox": ("Payload",),
    "waiting": ("Signal…",),
}
"""Buttons of a page that show more of the data."""
CONTENT = """() => [
    document.documentElement.outerHTML, document.title, location.href, JSON.stringify(localStorage),
    ...[...document.querySelectorAll("input, textarea, select")].map((each) => each.value),
].join("\\n")"""


@asynccontextmanager
async def filled_site() -> AsyncIterator[tuple[WebSite, dict[str, str]]]:
    """With the uuids of what it has."""
    shop = SecretShop()
    async with shop.app.running(), web_site(shop.app) as site:
        await shop.fill(site)
        await until(lambda: has_counted(site))
        yield site, shop.uuids
        shop.gate.set()


def test_no_page_has_a_secret(chromium: Browser) -> None:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(filled_site()) as (site, uuids),
        watched_tab(chromium, site, OPERATOR_TOKEN) as tab,
    ):
        shown = {path: contents(tab, site, path, uuids) for path in (*WITH_TEXTS, *WITHOUT_TEXTS)}
    assert [path for path, text in shown.items() if SECRET in text] == []
    assert [path for path in WITH_TEXTS if PLAIN not in shown[path]] == []


def contents(tab: Watched, site: WebSite, path: str, uuids: dict[str, str]) -> str:
    """Everything that the page has, also behind its buttons."""
    page = tab.page
    visit(tab, site, path.format(**uuids))
    await_role(tab)
    found = [page.evaluate(CONTENT)]
    for button in BUTTONS.get(path, ()):
        page.click(f"main button:has-text('{button}') >> nth=0")
        found.append(page.evaluate(CONTENT))
        if page.locator("dialog[open]").count():
            page.wait_for_selector("dialog[open] :is(pre, input, textarea)")
            found.append(page.evaluate(CONTENT))
            page.keyboard.press("Escape")
            page.wait_for_selector("dialog[open]", state="detached")
    return "\n".join(found)
