"""Takes the screenshots of docs/how-to/page.md and genesis.md: a shop with real workers and the example, in Chromium.

python -m tests.page.screenshots [genesis]     genesis: only that of the example
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.acceptance.row_e.test_genesis import genesis
from tests.page.checkout import ROOT
from tests.page.conftest import SHOP, TOKEN, Shop
from tests.page.event_fills import events, refused_events
from tests.support.services import debian

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLOW_SHOP = ROOT / "tests" / "page" / "flow_shop.py"
IMAGES = ROOT / "docs" / "images"
FILL = """
async def main():
    async with shop.app:
        for order in range(120):
            await shop.email.enqueue(f"user{order}@example.com", order)
        for order in range(24):
            await shop.deliver.enqueue(order, ["acme", "globex", "initech"][order % 3])
        for order in range(4):
            await shop.deliver.enqueue(-1 - order, "globex")
        for image in range(12):
            await shop.resize.enqueue(f"photo-{image}.png", 300.0 if image < 2 else 0.2)
        for order in range(30):
            await shop.email.options(after=3600 + 60 * order).enqueue(f"later{order}@example.com", order)
"""
CHANGES = """async () => {
    const headers = {"Content-Type": "application/json", "X-Onthedot": "1"};
    const post = (path, body) => fetch(`/api/v1${path}`, {method: "POST", headers, body: JSON.stringify(body)});
    await post("/outbox/photo-2/discard", {reason: "too large for the topic"});
    await post("/sources/deliver/pause", {reason: "vendor is down"});
    const preview = await post("/tasks/preview", {action: "cancel", q: "source:email state:scheduled"});
    const {token} = await preview.json();
    await post("/tasks/cancel", {token, rate: 2, reason: "wrong addresses"});
    await post("/sources/deliver/resume", {reason: "vendor is back"});
}"""
FLOWS = """
async def main():
    studio = flow_shop
    async with studio.app:
        await studio.nightly("Monday", 60).enqueue()
        print((await studio.nightly("Tuesday", 300, "/nothing").enqueue()).uuid)
        await studio.app.batch(studio.names, count=20, args={"style": "jazz"})
        print((await studio.app.batch(studio.names, count=50, args={"style": "noir", "gate": "/nothing"})).id)
        for order, customer in ((17, "acme"), (18, "globex"), (21, "initech")):
            await studio.approve.enqueue(order, customer)
"""
SIZES = {"wide": (1280, 760), "narrow": (390, 760)}


def take(page: Page, shop: Shop, path: str, name: str, theme: str, size: str = "wide") -> None:
    width, height = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.goto(f"{shop.address}/{path}")
    page.wait_for_selector("main :is(h1, .empty)")
    page.wait_for_selector(".loading", state="detached")
    page.wait_for_timeout(1500)  # for the second round of updates
    page.screenshot(path=IMAGES / f"page-{name}.png")


def take_flows(browser: Browser, folder: Path) -> None:
    folder.mkdir()
    studio = Shop(folder, FLOW_SHOP, "studio")
    with studio.worker(), studio.page():
        flow, batch = studio.run(FLOWS).split()
        page = browser.new_context(timezone_id="Europe/Berlin").new_page()
        page.goto(f"{studio.address}/?token={TOKEN}")
        take(page, studio, f"flows/{flow}", "flow", "dark")
        take(page, studio, "flows", "flows", "light")
        take(page, studio, f"batches/{batch}", "batch", "light")
        take(page, studio, "waiting", "waiting", "dark")
        take(page, studio, f"flows/{flow}", "flow-narrow", "light", "narrow")


def take_genesis(browser: Browser, folder: Path) -> None:
    """One batch that is complete, and one in the middle."""
    folder.mkdir()
    with genesis(folder, seconds=[0.4, 1.6]) as example:
        page = browser.new_context(viewport={"width": 1100, "height": 760}).new_page()
        page.goto(example.url)
        page.select_option("[name=type]", "location_name")
        page.fill("[name=count]", "24")
        page.click("button.main")
        page.wait_for_selector("text=all after")
        page.select_option("[name=type]", "character_name")
        page.fill("[name=count]", "50")
        page.click("button.main")
        page.wait_for_selector(".batch + .batch")
        page.wait_for_selector(".batch:first-child li")
        page.wait_for_timeout(300)  # for the bar
        page.screenshot(path=IMAGES / "genesis.png")


def main() -> None:
    from playwright.sync_api import sync_playwright  # not where tests are collected without it

    IMAGES.mkdir(exist_ok=True)
    program = debian.program("chromium-headless-shell")
    if sys.argv[1:] == ["genesis"]:
        with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=program.path, args=["--no-sandbox"], env=program.environment
            )
            take_genesis(browser, Path(folder) / "genesis")
            browser.close()
        return
    code = Path(tempfile.gettempdir()) / "shop.py"  # tracebacks show no path of this checkout
    shutil.copy(SHOP, code)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        shop = Shop(Path(folder))
        shop.program = code
        browser = playwright.chromium.launch(
            executable_path=program.path, args=["--no-sandbox"], env=program.environment
        )
        shop.run(refused_events("MessageSizeTooLarge: 1,204,113 bytes, the topic allows 1,048,588", "19"))
        with shop.worker():
            shop.run(FILL)
            shop.run(events("by 12:00"))
            with shop.page():
                page = browser.new_context(timezone_id="Europe/Berlin").new_page()
                page.goto(f"{shop.address}/?token={TOKEN}")
                take(page, shop, "", "overview", "light")
                take(page, shop, "tasks?q=source%3Aresize", "tasks", "dark")
                take(page, shop, "failed", "failed", "light")
                page.click("text=Newest >> nth=0")
                page.wait_for_selector(".attempts")
                page.screenshot(path=IMAGES / "page-task.png")
                take(page, shop, "outbox", "outbox", "light")
                page.evaluate(CHANGES)
                take(page, shop, "audit", "audit", "dark")
                take(page, shop, "schedules", "schedules", "light")
                take(page, shop, "sources/deliver", "source", "light")
                take(page, shop, "", "narrow", "dark", "narrow")
        take_flows(browser, Path(folder) / "studio")
        take_genesis(browser, Path(folder) / "genesis")
        browser.close()
    code.unlink()


if __name__ == "__main__":
    main()
