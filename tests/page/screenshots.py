"""Takes the screenshots of docs/how-to/page.md and genesis.md: shops with real workers and the example, in Chromium.

python -m tests.page.screenshots [shop] [flows] [empty] [genesis]     some parts only
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.acceptance.row_e.test_genesis import genesis
from tests.page.checkout import ROOT
from tests.page.conftest import SHOP, TOKEN, Shop, started_chromium
from tests.page.event_fills import events, refused_events
from tests.support.process_guard import start_guarded
from tests.support.services import valkey

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
SIZES = {"": (1440, 900), "-1024": (1024, 768), "-390": (390, 844)}  # by the end of the name
THEMES = {"light": "", "dark": "-dark"}  # with the end of the name after it
SHOP_PAGES = {
    "tasks": "tasks?q=source%3Aresize",
    "failed": "failed",
    "sources": "sources",
    "source": "sources/deliver",
    "schedules": "schedules",
    "workers": "workers",
    "outbox": "outbox",
    "agents": "agents?correlation=cart-18",
    "audit": "audit",
    "overview": "",
}
TRAFFIC = """
import asyncio, random
from tests.page import shop

async def main():
    async with shop.app:
        while True:
            for order in range(random.randint(1, 8)):
                await shop.email.enqueue(f"user{order}@example.com", order)
            await shop.deliver.enqueue(random.randint(1, 99), "globex")
            await asyncio.sleep(random.random())

asyncio.run(main())
"""


class Camera:
    """A tab that is signed in to a shop."""

    def __init__(self, browser: Browser, shop: Shop) -> None:
        self.page: Page = browser.new_context(timezone_id="Europe/Berlin", reduced_motion="reduce").new_page()
        self._shop = shop
        self.page.goto(f"{shop.address}/?token={TOKEN}")

    def take(self, path: str, name: str) -> None:
        """At every width, for which it is loaded again, in both themes."""
        for size in SIZES:
            self._set_size(size)
            self.page.goto(f"{self._shop.address}/{path}")
            self.page.wait_for_selector("main :is(h1, .empty)")
            self.page.wait_for_selector(".loading", state="detached")
            self.page.wait_for_timeout(1500)  # for the second round of updates
            self._shoot(name, size)

    def shoot(self, name: str) -> None:
        """Takes the view that the tab shows already."""
        for size in SIZES:
            self._set_size(size)
            self._shoot(name, size)

    def _set_size(self, size: str) -> None:
        width, height = SIZES[size]
        self.page.set_viewport_size({"width": width, "height": height})

    def _shoot(self, name: str, size: str) -> None:
        for theme, end in THEMES.items():
            self.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            self.page.wait_for_timeout(300)  # charts follow the width and the colours
            self.page.screenshot(path=IMAGES / f"page-{name}{size}{end}.png")


@contextmanager
def traffic(shop: Shop) -> Iterator[None]:
    """Tasks of an ordinary day, for the charts."""
    process = start_guarded([sys.executable, "-c", TRAFFIC], cwd=ROOT, env=shop.environment)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def take_shop(browser: Browser, folder: Path) -> None:
    code = Path(tempfile.gettempdir()) / "shop.py"  # tracebacks show no path of this checkout
    shutil.copy(SHOP, code)
    shop = Shop(folder)
    shop.program = code
    shop.run(refused_events("MessageSizeTooLarge: 1,204,113 bytes, the topic allows 1,048,588", "19"))
    with shop.worker():
        shop.run(FILL)
        shop.run(events("by 12:00"))
        with shop.page(), traffic(shop):
            camera = Camera(browser, shop)
            for name, path in SHOP_PAGES.items():
                if name == "audit":
                    camera.page.evaluate(CHANGES)
                camera.take(path, name)
            camera.page.goto(f"{shop.address}/failed")
            camera.page.click("text=Newest >> nth=0")
            camera.page.wait_for_selector(".attempts")
            camera.take(f"tasks/{camera.page.url.rpartition('/')[2]}", "task")
            camera.page.context.clear_cookies()
            camera.take("login", "login")
    code.unlink()


def take_flows(browser: Browser, folder: Path) -> None:
    studio = Shop(folder, FLOW_SHOP, "studio")
    with studio.worker(), studio.page():
        flow, batch = studio.run(FLOWS).split()
        camera = Camera(browser, studio)
        for path, name in (
            ("flows", "flows"),
            (f"flows/{flow}", "flow"),
            ("batches", "batches"),
            (f"batches/{batch}", "batch"),
            ("waiting", "waiting"),
        ):
            camera.take(path, name)


def take_empty_and_unavailable(browser: Browser, folder: Path) -> None:
    with valkey.server() as server:
        shop = Shop(folder, store=server.url)
        with shop.page():
            camera = Camera(browser, shop)
            camera.take("", "empty")
            camera.take("tasks", "empty-tasks")
            shop.run(FILL)
            camera.page.goto(f"{shop.address}/tasks")
            camera.page.wait_for_selector("tr[data-uuid]")
            server.stop()
            camera.page.wait_for_selector(".banner[role=alert]", timeout=60_000)
            camera.shoot("unavailable")


def take_genesis(browser: Browser, folder: Path) -> None:
    """One batch that is complete, and one in the middle."""
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


PARTS = {"shop": take_shop, "flows": take_flows, "empty": take_empty_and_unavailable, "genesis": take_genesis}


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, started_chromium() as browser:
        for part in sys.argv[1:] or PARTS:
            folder = Path(name, part)
            folder.mkdir()
            PARTS[part](browser, folder)


if __name__ == "__main__":
    main()
